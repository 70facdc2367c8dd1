#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/pickle_bytes.h"
#include "support/refusal.h"
#include "weights/formats/format_error.h"
#include "weights/formats/state_dict.h"

namespace attn::formats {
namespace {

using attn::testing::number;
using attn::testing::pickled::boolean;
using attn::testing::pickled::call;
using attn::testing::pickled::dict;
using attn::testing::pickled::global;
using attn::testing::pickled::list;
using attn::testing::pickled::long_integer;
using attn::testing::pickled::none;
using attn::testing::pickled::storage_id;
using attn::testing::pickled::tensor;
using attn::testing::pickled::text;
using attn::testing::pickled::tuple;
using attn::testing::pickled::Values;
using attn::testing::pickled::whole;
using namespace std::string_literals;

const std::string kMagic = "\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19."s;

/// The parts of a legacy file.
struct Legacy {
  std::string magic = kMagic;
  std::string version = whole("M\xe9\x03");
  std::string machine = whole(dict({{text("little_endian"), boolean(true)}}));
  std::string object;
  std::vector<std::string> keys = {"7"};
  /// Behind the keys: for each storage the number of its elements and its bytes.
  std::string storages = number(6, 8) + std::string(24, 'x');

  std::string bytes() const {
    Values texts;
    for (const std::string& key : keys) texts.push_back(text(key));
    return magic + version + machine + whole(object) + whole(list(texts)) + storages;
  }
};

std::string legacy_storage(std::string_view key, std::int64_t elements,
                           const std::string& view = none(),
                           std::string_view storage_class = "FloatStorage") {
  return storage_id({text("storage"), global("torch", storage_class), text(key), text("cpu"),
                     long_integer(elements), view});
}

Legacy one_tensor() {
  return {.object = dict({{text("w"), tensor(legacy_storage("7", 6), 0, {2, 3}, {3, 1})}})};
}

void refused(const Legacy& legacy, std::string_view place, std::string_view rule) {
  const std::string bytes = legacy.bytes();
  expect_refused([&] { read_legacy_state_dict(bytes); }, place, rule);
}

TEST(LegacyStateDict, ReadsATensorWithItsPlace) {
  const std::string bytes = one_tensor().bytes();
  EXPECT_TRUE(begins_like_pickle(bytes));
  const StoredFile file = read_legacy_state_dict(bytes);
  ASSERT_EQ(file.tensors.size(), 1u);
  EXPECT_EQ(file.tensors[0].name, "w");
  EXPECT_EQ(file.tensors[0].sizes, std::vector<std::uint64_t>({2, 3}));
  const Storage& storage = file.storages.at(file.tensors[0].storage);
  EXPECT_EQ(bytes.substr(storage.begin, storage.size), std::string(24, 'x'));
  EXPECT_FALSE(storage.crc32);
}

TEST(LegacyStateDict, ReadsTheMagicNumberOfEveryProtocol) {
  for (const std::string& magic :
       {"\x80\x04\x95\x0d\0\0\0\0\0\0\0\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19."s,
        "L119547037146038801333356L\n."s}) {
    Legacy legacy = one_tensor();
    legacy.magic = magic;
    EXPECT_TRUE(begins_like_pickle(legacy.bytes()));
    EXPECT_EQ(read_legacy_state_dict(legacy.bytes()).tensors.size(), 1u);
  }
}

TEST(LegacyStateDict, ReadsStoragesInTheOrderOfTheirKeys) {
  const Legacy legacy = {
      .object =
          dict({{text("a"), tensor(legacy_storage("2", 2), 0, {2}, {1})},
                {text("b"), tensor(legacy_storage("1", 3, none(), "HalfStorage"), 0, {3}, {1})}}),
      .keys = {"1", "2"},
      .storages = number(3, 8) + "hhhhhh" + number(2, 8) + "ffffffff"};
  const std::string bytes = legacy.bytes();
  const StoredFile file = read_legacy_state_dict(bytes);
  const auto bytes_of = [&](std::size_t tensor) {
    const Storage& storage = file.storages[file.tensors[tensor].storage];
    return bytes.substr(storage.begin, storage.size);
  };
  EXPECT_EQ(bytes_of(0), "ffffffff");
  EXPECT_EQ(bytes_of(1), "hhhhhh");
}

TEST(LegacyStateDict, HonoursViewsOfStorages) {
  Legacy legacy = one_tensor();
  const auto view = [](std::int64_t offset, std::int64_t size) {
    return legacy_storage("7", 6, tuple({text("8"), long_integer(offset), long_integer(size)}));
  };
  legacy.object = tensor(view(2, 3), 1, {2}, {1});
  EXPECT_EQ(read_legacy_state_dict(legacy.bytes()).tensors[0].offset, 3u);
  legacy.object = tensor(view(2, 3), 2, {2}, {1});
  refused(legacy, "tensor \"\"", "inside the 20 bytes");
  legacy.object = tensor(view(2, 5), 0, {2}, {1});
  refused(legacy, "storage \"7\"", "views inside its 6 elements");
  legacy.object = tensor(view(INT64_MAX, INT64_MAX), 0, {2}, {1});
  refused(legacy, "storage \"7\"", "views inside its 6 elements");
  legacy.object = tensor(view(-1, 3), 0, {2}, {1});
  refused(legacy, "offset of a view", "an int of 0 or more");
  legacy.object = tensor(legacy_storage("7", 6, text("8")), 0, {2}, {1});
  refused(legacy, "view", "a tuple");
}

TEST(LegacyStateDict, RefusesAHeadThatIsNotPyTorchs) {
  Legacy legacy = one_tensor();
  legacy.magic = whole("K\1");
  refused(legacy, "magic number", "a pickle of another program");
  legacy = one_tensor();
  legacy.version = whole("K\1");
  refused(legacy, "protocol version", "1001");
  legacy = one_tensor();
  legacy.machine = whole("N");
  refused(legacy, "system information", "a dict, got None");
}

TEST(LegacyStateDict, ChecksStoragesAgainstTheirIds) {
  Legacy legacy = one_tensor();
  legacy.keys = {"8"};
  refused(legacy, "storage \"8\"", "a storage that the pickle names");
  legacy.keys = {"7", "7"};
  refused(legacy, "storage \"7\"", "its key once, got twice");
  legacy.keys = {};
  refused(legacy, "storage \"7\"", "its bytes in the file, got none");
  legacy = one_tensor();
  legacy.storages[0] = 5;
  refused(legacy, "storage \"7\"", "6 elements, got 5");
  legacy = one_tensor();
  legacy.storages.pop_back();
  refused(legacy, "storage \"7\"", "24 bytes, got 23");
  legacy.storages = "1234";
  refused(legacy, "storage \"7\"", "8 bytes, got 4");
  legacy = one_tensor();
  legacy.object = tensor(legacy_storage("7", INT64_MAX), 0, {2}, {1});
  legacy.storages = number(INT64_MAX, 8);
  refused(legacy, "storage \"7\"", "less than 2^63 bytes");
}

TEST(LegacyStateDict, RefusesAStorageOfTwoTypes) {
  Legacy legacy = one_tensor();
  legacy.object = list({tensor(legacy_storage("7", 6), 0, {1}, {1}),
                        tensor(legacy_storage("7", 12, none(), "HalfStorage"), 0, {1}, {1})});
  refused(legacy, "storage \"7\"", "one type and size");
}

TEST(LegacyStateDict, RefusesLongKeysOfStorages) {
  Legacy legacy = one_tensor();
  legacy.keys = {std::string(513, 'k')};
  legacy.object = tensor(legacy_storage(legacy.keys[0], 6), 0, {6}, {1});
  refused(legacy, "persistent id, key", "at most 512 bytes");
}

TEST(LegacyStateDict, RefusesClassesByName) {
  Legacy legacy = one_tensor();
  legacy.object = call(global("os", "system"), {text("true")});
  refused(legacy, "\"os.system\"", "not known");
  // Whole modules, as torch.save(model) wrote them, with their source.
  legacy.object = storage_id({text("module"), global("m", "Net"), none(), none()});
  refused(legacy, "\"m.Net\"", "not known");
  legacy.keys = {};
  EXPECT_EQ(read_legacy_state_dict(legacy.bytes(), {.opaque = true}).opaque,
            std::vector<std::string>({"m.Net"}));
}

TEST(LegacyStateDict, RefusesEveryPrefix) {
  const std::string bytes = one_tensor().bytes();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(read_legacy_state_dict(std::string_view(bytes).substr(0, size)), FormatError);
  }
}

TEST(LegacyStateDict, SurvivesEveryChangedByte) {
  const std::string bytes = one_tensor().bytes();
  std::size_t read = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (int value = 0; value < 256; value += 3) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(value);
      try {
        read_legacy_state_dict(changed);
        ++read;
      } catch (const FormatError&) {
      }
    }
  }
  EXPECT_GT(read, 0u) << "the bytes of the storage are data";
}

TEST(LegacyStateDict, TellsTarArchivesApart) {
  std::string tar(512, '\0');
  tar.replace(257, 5, "ustar");
  EXPECT_TRUE(begins_like_torch_tar(tar));
  EXPECT_FALSE(begins_like_torch_tar(one_tensor().bytes()));
  EXPECT_FALSE(begins_like_pickle(tar));
}

}  // namespace
}  // namespace attn::formats
