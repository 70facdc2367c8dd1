#include "weights/formats/npy.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/refusal.h"
#include "support/zip_bytes.h"
#include "weights/formats/inflate.h"
#include "weights/formats/limits.h"

namespace attn::formats {
namespace {

using attn::testing::deflate_stored;
using attn::testing::number;
using attn::testing::zip_bytes;
using attn::testing::zip_part;
using attn::testing::ZipFields;
using attn::testing::ZipPart;
using Sizes = std::vector<std::uint64_t>;

/// A .npy file with this header text, as long as it says.
std::string npy(std::string_view text, std::string_view data, std::uint64_t version = 1) {
  return "\x93NUMPY" + number(version, 2) + number(text.size(), version == 1 ? 2 : 4) +
         std::string(text) + std::string(data);
}

std::string header(std::string_view descr, std::string_view shape,
                   std::string_view fortran_order = "False") {
  return "{'descr': '" + std::string(descr) + "', 'fortran_order': " + std::string(fortran_order) +
         ", 'shape': " + std::string(shape) + ", }\n";
}

StoredTensor tensor_of(std::string_view file) { return read_npy(file).tensors.at(0); }

/// Refused, whatever follows the header.
void expect_header_refused(std::string_view text, std::string_view place, std::string_view rule) {
  expect_refused([&] { read_npy(npy(text, std::string(1000, '\0'))); }, place, rule);
}

TEST(Npy, IsOneTensorWithoutAName) {
  const std::string file = npy(header("<f4", "(2, 3)"), std::string(24, 'x'));
  EXPECT_TRUE(begins_like_npy(file));
  const StoredFile read = read_npy(file);
  ASSERT_EQ(read.tensors.size(), 1U);
  const StoredTensor& tensor = read.tensors[0];
  EXPECT_EQ(tensor.name, "");
  EXPECT_EQ(tensor.type, ElementType::kFloat32);
  EXPECT_EQ(tensor.sizes, (Sizes{2, 3}));
  EXPECT_EQ(tensor.strides, (Sizes{3, 1}));
  EXPECT_EQ(tensor.offset, 0U);
  ASSERT_EQ(read.storages.size(), 1U);
  EXPECT_EQ(read.storages[0].begin, file.size() - 24);
  EXPECT_EQ(read.storages[0].stored_size, 24U);
  EXPECT_EQ(read.storages[0].size, 24U);
  EXPECT_EQ(read.storages[0].swap, 1U);
  EXPECT_FALSE(read.storages[0].deflated);
  EXPECT_FALSE(read.storages[0].crc32.has_value());
}

TEST(Npy, HasTheTypesOfNumPyThatTensorsHave) {
  const std::vector<std::pair<std::string_view, ElementType>> types = {
      {"b1", ElementType::kBool},      {"i1", ElementType::kInt8},
      {"u1", ElementType::kUInt8},     {"i2", ElementType::kInt16},
      {"u2", ElementType::kUInt16},    {"i4", ElementType::kInt32},
      {"u4", ElementType::kUInt32},    {"i8", ElementType::kInt64},
      {"u8", ElementType::kUInt64},    {"f2", ElementType::kFloat16},
      {"f4", ElementType::kFloat32},   {"f8", ElementType::kFloat64},
      {"c8", ElementType::kComplex64}, {"c16", ElementType::kComplex128},
  };
  for (const auto& [name, type] : types) {
    for (const std::string order : {"", "<", "|", "="}) {
      const StoredFile file =
          read_npy(npy(header(order + std::string(name), "()"), std::string(16, 'x')));
      EXPECT_EQ(file.tensors[0].type, type) << order << name;
      EXPECT_EQ(file.storages[0].swap, 1U) << order << name;
    }
  }
}

TEST(Npy, InTheOtherByteOrderSwapsNumbers) {
  const auto swap_of = [](std::string_view descr) {
    return read_npy(npy(header(descr, "()"), std::string(16, 'x'))).storages[0].swap;
  };
  EXPECT_EQ(swap_of(">b1"), 1U);
  EXPECT_EQ(swap_of(">u1"), 1U);
  EXPECT_EQ(swap_of(">f2"), 2U);
  EXPECT_EQ(swap_of(">i4"), 4U);
  EXPECT_EQ(swap_of(">f8"), 8U);
  EXPECT_EQ(swap_of(">c8"), 4U) << "two numbers";
  EXPECT_EQ(swap_of(">c16"), 8U) << "two numbers";
}

TEST(Npy, InFortranOrderHasItsStrides) {
  const std::string data(4 * 24, 'x');
  EXPECT_EQ(tensor_of(npy(header("<f4", "(2, 3, 4)", "True"), data)).strides, (Sizes{1, 2, 6}));
  EXPECT_EQ(tensor_of(npy(header("<f4", "(2, 3, 4)", "False"), data)).strides, (Sizes{12, 4, 1}));
  EXPECT_EQ(tensor_of(npy(header("<f4", "(2, 0, 4)", "True"), "")).strides, (Sizes{1, 2, 2}));
}

TEST(Npy, MayHaveAnyNumberOfDimensions) {
  EXPECT_EQ(tensor_of(npy(header("<f4", "()"), "1234")).sizes, Sizes{});
  EXPECT_EQ(tensor_of(npy(header("<f4", "(1,)"), "1234")).sizes, Sizes{1});
  EXPECT_EQ(tensor_of(npy(header("<f4", "(0,)"), "")).sizes, Sizes{0});
  std::string most = "(";
  for (std::size_t i = 0; i < kMaxDimensions; ++i) most += "1,";
  EXPECT_EQ(tensor_of(npy(header("<f4", most + ")"), "1234")).sizes, Sizes(kMaxDimensions, 1));
  expect_header_refused(header("<f4", most + "1)"), "shape", "at most 64 sizes");
}

TEST(Npy, IsReadInEveryVersion) {
  for (const std::uint64_t version : {1U, 2U, 3U})
    EXPECT_EQ(tensor_of(npy(header("<f4", "(1,)"), "1234", version)).sizes, Sizes{1}) << version;
  for (const std::uint64_t version : {0x0000U, 0x0004U, 0x0101U, 0x0102U, 0xFFFFU})
    expect_refused([&] { read_npy(npy(header("<f4", "(1,)"), "1234", version)); }, "version",
                   "expected 1.0, 2.0 or 3.0");
}

TEST(Npy, HasAHeaderInAnySpellingOfPython) {
  for (const std::string_view text : {
           R"({"shape":(1,),"descr":"<f4","fortran_order":False})",
           "\t{ 'fortran_order' :False , 'shape': ( 1 ,\n) , 'descr':\t'<f4' , } \n\n",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (1L,), }",  // Python 2
       }) {
    const StoredTensor tensor = tensor_of(npy(text, "1234"));
    EXPECT_EQ(tensor.type, ElementType::kFloat32) << text;
    EXPECT_EQ(tensor.sizes, Sizes{1}) << text;
  }
}

TEST(Npy, WithoutThatHeaderIsRefused) {
  const std::string good = "'descr': '<f4', 'fortran_order': False, 'shape': (1,)";
  for (const std::string& text :
       std::vector<std::string>{"",
                                " ",
                                "{",
                                "}",
                                "{}",
                                "{,}",
                                "[]",
                                good,
                                "{" + good,
                                good + "}",
                                "{" + good + "}}",
                                "{" + good + "} x",
                                "{" + good + ",,}",
                                "{'descr' '<f4'}",
                                "{descr: '<f4'}",
                                "{'descr': <f4}",
                                "{'descr': '<f4}",
                                "{'descr': '<f4\"}",
                                "{'descr': '\\x3cf4'}",
                                "{" + good + std::string(1, '\0') + "}"}) {
    EXPECT_NE(refusal([&] { read_npy(npy(text, "1234")); }), "") << text;
  }
}

TEST(Npy, HasEachKeyOnceAndNoOther) {
  expect_header_refused("{'fortran_order': False, 'shape': ()}", "descr", "got nothing");
  expect_header_refused("{'descr': '<f4', 'shape': ()}", "fortran_order", "got nothing");
  expect_header_refused("{'descr': '<f4', 'fortran_order': False}", "shape", "got nothing");
  expect_header_refused("{'descr': '<f4', 'descr': '<f4'}", "descr", "got twice");
  expect_header_refused("{'order': 'C'}", "\"order\"", "descr, fortran_order and shape alone");
}

TEST(Npy, HasAnOrderAndSizesThatPythonWrites) {
  for (const std::string_view order : {"0", "1", "true", "None", "'C'", ""})
    expect_header_refused(header("<f4", "()", order), "True or False", "at its character");
  for (const std::string_view shape :
       {"(1)", "(-1,)", "(+1,)", "(01,)", "(1.0,)", "(1e1,)", "(0x1,)", "(1_0,)", "(True,)",
        "(None,)", "(1,,)", "(,)", "(1 1)", "[1]", "1", "((1,),)", "(1LL,)", "('1',)", "(1,"})
    EXPECT_NE(refusal([&] { read_npy(npy(header("<f4", shape), "1234")); }), "") << shape;
}

TEST(Npy, OfTypesThatNoTensorHasIsRefusedByName) {
  const std::vector<std::pair<std::string_view, std::string_view>> types = {
      {"|O", "a Python object"}, {"|S4", "byte strings"}, {"<U4", "strings"},
      {"<M8[s]", "times"},       {"<m8[ns]", "times"},    {"|V2", "raw bytes, as which bfloat16"},
      {"<f16", "\"<f16\""},      {"<c32", "\"<c32\""},    {"<f3", "\"<f3\""},
      {"<f44", "\"<f44\""},      {"<", "\"<\""},          {"", "\"\""},
      {"<<f4", "\"<<f4\""},      {"<f4 ", "\"<f4 \""},
  };
  for (const auto& [descr, what] : types) expect_header_refused(header(descr, "()"), "descr", what);
  expect_header_refused("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", "descr",
                        "structured");
  expect_header_refused("{'descr': ('<f4', (2,)), 'fortran_order': False, 'shape': ()}", "descr",
                        "structured");
}

TEST(Npy, HasTheBytesOfItsShape) {
  for (std::size_t size = 0; size < 24; ++size)
    expect_refused([&] { read_npy(npy(header("<f4", "(2, 3)"), std::string(size, 'x'))); },
                   "float32 [2, 3]", "inside the " + std::to_string(size) + " bytes");
  const std::string two = npy(header("<f4", "(2, 3)"), std::string(24, 'x')) + "and another array";
  EXPECT_EQ(read_npy(two).storages[0].size, 24U) << "as numpy.load";
}

TEST(Npy, WithSizesBeyondAllBoundsIsRefused) {
  const std::string_view most = "9223372036854775807";
  for (const std::string& shape : std::vector<std::string>{
           "(9223372036854775807,)", "(9223372036854775808,)", "(18446744073709551615,)",
           "(18446744073709551616,)", "(4294967296, 4294967296)",
           "(0, " + std::string(most) + ", " + std::string(most) + ")",
           "(" + std::string(9000, '9') + ",)"})
    EXPECT_NE(refusal([&] { read_npy(npy(header("<f4", shape), "1234")); }), "") << shape;
}

TEST(Npy, CutOffAnywhereIsRefused) {
  const std::string file = npy(header("<f4", "(1,)"), "1234", 2);
  for (std::size_t size = 0; size < file.size(); ++size)
    EXPECT_NE(refusal([&] { read_npy(std::string_view(file).substr(0, size)); }), "") << size;
}

TEST(Npy, WithAHeaderBeyondTheLimitIsRefused) {
  const std::string text = header("<f4", "(1,)");
  const std::string longest = text + std::string(kMaxNpyHeader - text.size(), ' ');
  EXPECT_EQ(tensor_of(npy(longest, "1234")).sizes, Sizes{1});
  expect_refused([&] { read_npy(npy(longest + " ", "1234")); }, "length", "at most 10000 bytes");
  expect_refused([&] { read_npy("\x93NUMPY" + number(2, 2) + "\xFF\xFF\xFF\xFF" + text); },
                 "length", "got 4294967295");
}

ZipPart record(const std::string& name, const std::string& bytes) {
  return zip_part(name, bytes, crc32(bytes));
}

ZipPart deflated(const std::string& name, const std::string& bytes) {
  ZipPart part = zip_part(name, deflate_stored(bytes), crc32(bytes));
  part.both([&](ZipFields& fields) {
    fields.method = 8;
    fields.size = bytes.size();
  });
  return part;
}

StoredFile read_archive(const std::string& file) { return read_npz(file, ZipArchive(file)); }

TEST(Npz, HasATensorForEachNpyRecord) {
  const std::string file =
      zip_bytes({record("w.npy", npy(header("<f4", "(1,)"), "1234")),
                 record("notes.txt", "no array"), record(".npy", npy(header("|b1", "()"), "\1"))});
  const StoredFile read = read_archive(file);
  ASSERT_EQ(read.tensors.size(), 2U);
  EXPECT_EQ(read.tensors[0].name, "w");
  EXPECT_EQ(read.tensors[0].type, ElementType::kFloat32);
  EXPECT_EQ(read.tensors[1].name, "");
  EXPECT_EQ(read.tensors[1].type, ElementType::kBool);
  ASSERT_EQ(read.skipped.size(), 1U);
  EXPECT_EQ(read.skipped[0].name, "notes.txt");
}

TEST(Npz, PointsAtTheBytesOfAStoredArray) {
  const std::string file = zip_bytes({record("w.npy", npy(header(">i2", "(2,)"), "abcd"))});
  const StoredFile read = read_archive(file);
  const Storage& storage = read.storages.at(read.tensors.at(0).storage);
  EXPECT_EQ(file.substr(storage.begin, storage.stored_size), "abcd");
  EXPECT_EQ(storage.size, 4U);
  EXPECT_EQ(storage.skip, 0U);
  EXPECT_EQ(storage.swap, 2U);
  EXPECT_EQ(storage.crc32, 0xED82CD11U);  // of "abcd", by Python's zlib
}

TEST(Npz, PointsAtTheBytesOfADeflatedArray) {
  const std::string file = zip_bytes({deflated("w.npy", npy(header("<i2", "(2,)"), "abcd"))});
  const StoredFile read = read_archive(file);
  const Storage& storage = read.storages.at(read.tensors.at(0).storage);
  EXPECT_TRUE(storage.deflated);
  EXPECT_EQ(storage.size, 4U);
  EXPECT_EQ(storage.crc32, 0xED82CD11U);
  std::string bytes(4, '?');
  inflate(std::string_view(file).substr(storage.begin, storage.stored_size), bytes, storage.skip);
  EXPECT_EQ(bytes, "abcd");
}

TEST(Npz, NamesTheRecordThatIsWrong) {
  const auto expect_record_refused = [](const std::string& bytes, std::string_view rule) {
    for (const ZipPart& part : {record("w.npy", bytes), deflated("w.npy", bytes)})
      expect_refused([&] { read_archive(zip_bytes({part})); }, "\"w.npy\"", rule);
  };
  const std::string good = npy(header("<f4", "(1,)"), "1234");
  expect_record_refused("", "expected a .npy file");
  expect_record_refused("no array", "expected a .npy file");
  expect_record_refused(npy(header("|O", "(1,)"), "1234"), "a Python object");
  expect_record_refused(npy(header("<f4", "(1,)"), "123"), "inside the 3 bytes");
  expect_record_refused(good + "5", "expected 4 bytes of its array, got 5");
  for (std::size_t size = 0; size < good.size(); ++size)
    expect_record_refused(good.substr(0, size), "expected");
  // Cut off between the end of the dict and that of the header.
  const std::string padded = npy(header("<f4", "(0,)") + "    ", "");
  expect_record_refused(padded.substr(0, padded.size() - 2),
                        "expected " + std::to_string(padded.size()) + " bytes, got " +
                            std::to_string(padded.size() - 2));
}

TEST(Npz, HasNamesInUtf8) {
  for (const std::string name : {"\xFF.npy", "\xC3.txt"})
    expect_refused([&] { read_archive(zip_bytes({record(name, "bytes")})); }, name,
                   "expected a name in UTF-8");
}

/// A file with one contiguous float32 tensor.
StoredFile one_tensor(std::string name, Sizes sizes) {
  StoredTensor tensor;
  tensor.name = std::move(name);
  tensor.strides = contiguous_strides(sizes);
  tensor.sizes = std::move(sizes);
  StoredFile file;
  file.storages.resize(1);
  file.tensors.push_back(std::move(tensor));
  return file;
}

std::string bytes_to(std::size_t count) {
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) bytes += static_cast<char>(i);
  return bytes;
}

using Write = void (*)(const StoredFile&, std::span<const std::string_view>, const Sink&);

std::string written(Write write, const StoredFile& file, std::string_view storage) {
  std::string bytes;
  write(file, std::span(&storage, 1), [&bytes](std::string_view piece) { bytes += piece; });
  return bytes;
}

TEST(Npy, IsWrittenAsNumPyDoes) {
  const std::string bytes = bytes_to(24);
  // What numpy.save writes: the text, then blanks up to a multiple of 64 with the line feed.
  const auto expected = [](std::string text, std::size_t length) {
    text.append(length - 11 - text.size(), ' ');
    return "\x93NUMPY" + number(1, 2) + number(length - 10, 2) + text + '\n';
  };
  const std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': ";
  EXPECT_EQ(written(write_npy, one_tensor("w", {2, 3}), bytes),
            expected(text + "(2, 3), }", 128) + bytes);
  EXPECT_EQ(written(write_npy, one_tensor("w", {6}), bytes),
            expected(text + "(6,), }", 128) + bytes);
  EXPECT_EQ(written(write_npy, one_tensor("w", {}), bytes),
            expected(text + "(), }", 128) + bytes.substr(0, 4));
  EXPECT_EQ(written(write_npy, one_tensor("w", {3, 0}), bytes), expected(text + "(3, 0), }", 128));
  StoredFile bools = one_tensor("w", {2});
  bools.tensors[0].type = ElementType::kBool;
  bools.tensors[0].offset = 1;
  EXPECT_EQ(written(write_npy, bools, bytes),
            expected("{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }", 128) + "\1\2");
}

TEST(Npz, IsWrittenWithArraysThatCanBeMapped) {
  StoredFile file = one_tensor("é", {2, 3});
  file.tensors.push_back(file.tensors[0]);
  file.tensors[1].name = "last";
  file.tensors[1].sizes = file.tensors[1].strides = {1};
  file.tensors[1].offset = 5;
  const std::string bytes = bytes_to(24);
  const std::string archive = written(write_npz, file, bytes);
  const StoredFile read = read_archive(archive);
  ASSERT_EQ(read.tensors.size(), 2U);
  EXPECT_EQ(read.tensors[0].name, "é");
  EXPECT_EQ(read.tensors[0].sizes, (Sizes{2, 3}));
  EXPECT_EQ(read.storages[0].begin % 64, 0U);
  EXPECT_EQ(archive.substr(read.storages[0].begin, 24), bytes);
  EXPECT_EQ(read.tensors[1].name, "last");
  EXPECT_EQ(read.storages[1].begin % 64, 0U);
  EXPECT_EQ(archive.substr(read.storages[1].begin, 4), bytes.substr(20));
}

TEST(Npy, IsNotWrittenForWhatItCannotHold) {
  const std::string bytes = bytes_to(24);
  const auto refuse = [&](const StoredFile& file, std::string_view place, std::string_view rule) {
    expect_refused([&] { written(write_npy, file, bytes); }, place, rule);
  };
  refuse({}, "expected one", "got 0");
  StoredFile file = one_tensor("w", {2, 3});
  file.tensors[0].type = ElementType::kBFloat16;
  refuse(file, "of NumPy", "bfloat16");
  file = one_tensor("w", {2, 3});
  file.tensors[0].strides = {1, 2};
  refuse(file, "\"w\"", "contiguous");
  refuse(one_tensor("w", {7}), "\"w\"", "inside the 24 bytes");
  file.tensors.push_back(file.tensors[0]);
  refuse(file, "expected one", "got 2");
}

}  // namespace
}  // namespace attn::formats
