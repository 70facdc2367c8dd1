#include "weights/formats/pickle.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support/pickle_bytes.h"
#include "support/refusal.h"
#include "weights/formats/format_error.h"
#include "weights/formats/limits.h"

namespace attn::formats {
namespace {

using attn::testing::pickled::boolean;
using attn::testing::pickled::call;
using attn::testing::pickled::dict;
using attn::testing::pickled::float_storage;
using attn::testing::pickled::global;
using attn::testing::pickled::integer;
using attn::testing::pickled::list;
using attn::testing::pickled::none;
using attn::testing::pickled::tensor;
using attn::testing::pickled::text;
using attn::testing::pickled::whole;
using namespace std::string_literals;
using enum PickleKind;

/// A pickle with its bytes, which it looks at.
struct Read {
  explicit Read(std::string text) : bytes(std::move(text)), pickle(read_pickle(bytes)) {}
  const PickleValue& root() const { return pickle[pickle.root]; }
  const PickleValue& item(std::size_t i) const { return pickle[pickle.items(root())[i]]; }

  std::string bytes;
  Pickle pickle;
};

std::int64_t int_of(const std::string& pickle) {
  const Read read(pickle);
  EXPECT_EQ(read.root().kind, kInt);
  EXPECT_EQ(read.root().text, "");
  return read.root().integer;
}

std::string text_of(const std::string& pickle) {
  const Read read(pickle);
  EXPECT_EQ(read.root().kind, kString);
  return std::string(read.root().text);
}

void expect_refused(const std::string& pickle, std::string_view rule) {
  formats::expect_refused([&] { read_pickle(pickle); }, "pickle, ", rule);
}

TEST(Pickle, ReadsIntsOfEveryOpcode) {
  EXPECT_EQ(int_of("K\xff."), 255);
  EXPECT_EQ(int_of("M\x34\x12."), 0x1234);
  EXPECT_EQ(int_of("J\xfe\xff\xff\xff."), -2);
  EXPECT_EQ(int_of("I-12\n."), -12);
  EXPECT_EQ(int_of("L123L\n."), 123);
  EXPECT_EQ(int_of("\x8a\x00."s), 0);
  EXPECT_EQ(int_of("\x8a\x01\xff."), -1);
  EXPECT_EQ(int_of("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\x7f\x00."s), INT64_MAX);
  EXPECT_EQ(int_of("\x8b\x02\x00\x00\x00\x00\x80."s), -32768);
}

TEST(Pickle, KeepsIntsBeyond64BitsAsTheyAreSpelled) {
  const Read binary("\x8a\x09\0\0\0\0\0\0\0\x80\x00."s), digits("L9223372036854775808L\n.");
  EXPECT_EQ(binary.root().kind, kInt);
  EXPECT_EQ(binary.root().text, "\0\0\0\0\0\0\0\x80\0"s);
  EXPECT_EQ(digits.root().text, "9223372036854775808");
}

TEST(Pickle, ReadsBoolsNoneAndFloats) {
  EXPECT_EQ(Read("I01\n.").root().kind, kBool);
  EXPECT_EQ(Read("I01\n.").root().integer, 1);
  EXPECT_EQ(Read("I00\n.").root().integer, 0);
  EXPECT_EQ(Read("\x80\x02\x88.").root().integer, 1);
  EXPECT_EQ(Read("N.").root().kind, kNone);
  const auto real = [](const std::string& pickle) {
    const Read read(pickle);
    EXPECT_EQ(read.root().kind, kFloat);
    return std::bit_cast<double>(read.root().integer);
  };
  EXPECT_EQ(real("G\x3f\xf8\0\0\0\0\0\0."s), 1.5);
  EXPECT_EQ(real("F-2.5e3\n."), -2500.0);
}

TEST(Pickle, ReadsStringsOfEveryOpcode) {
  EXPECT_EQ(text_of("\x8c\x02hi."), "hi");
  EXPECT_EQ(text_of("X\x02\0\0\0hi."s), "hi");
  EXPECT_EQ(text_of("\x8d\x02\0\0\0\0\0\0\0hi."s), "hi");
  EXPECT_EQ(text_of("U\x02hi."), "hi");
  EXPECT_EQ(text_of("T\x02\0\0\0hi."s), "hi");
  EXPECT_EQ(text_of("S'a\\n\\x41\\'\\\\b'\n."), "a\nA'\\b");
  EXPECT_EQ(text_of("Va\\u00e4\\U0001f600\xe4\n."), "a\xc3\xa4\xf0\x9f\x98\x80\xc3\xa4");
  EXPECT_EQ(text_of("V\\ud83d\\ude00\n."), "\xf0\x9f\x98\x80");
  EXPECT_EQ(text_of("V\\\\u0041\n."), "\\\\u0041");
}

TEST(Pickle, ReadsBytesOfEveryOpcode) {
  for (const std::string& pickle :
       {"C\x02\xff\0."s, "B\x02\0\0\0\xff\0."s, "\x8e\x02\0\0\0\0\0\0\0\xff\0."s,
        "\x96\x02\0\0\0\0\0\0\0\xff\0."s}) {
    const Read read(pickle);
    EXPECT_EQ(read.root().kind, kBytes);
    EXPECT_EQ(read.root().text, "\xff\0"s);
  }
  EXPECT_EQ(Read("U\x01\xff.").root().kind, kBytes) << "a string of Python 2 that is no UTF-8";
}

TEST(Pickle, KeepsLoneSurrogatesAsPythonWritesThem) {
  EXPECT_EQ(text_of("X\x03\0\0\0\xed\xa0\x80."s), "\xed\xa0\x80");
  expect_refused("X\x02\0\0\0\xc0\x80."s, "BINUNICODE at its byte 0: expected UTF-8");
}

TEST(Pickle, ReadsContainersOfEveryOpcode) {
  const auto items_of = [](const std::string& pickle, PickleKind kind) {
    const Read read(pickle);
    EXPECT_EQ(read.root().kind, kind) << pickle;
    std::vector<std::int64_t> items;
    for (const auto index : read.pickle.items(read.root())) {
      items.push_back(read.pickle[index].integer);
    }
    return items;
  };
  using Ints = std::vector<std::int64_t>;
  EXPECT_EQ(items_of(").", kTuple), Ints());
  EXPECT_EQ(items_of("K\x01\x85.", kTuple), Ints({1}));
  EXPECT_EQ(items_of("K\x01K\x02\x86.", kTuple), Ints({1, 2}));
  EXPECT_EQ(items_of("K\x01K\x02K\x03\x87.", kTuple), Ints({1, 2, 3}));
  EXPECT_EQ(items_of("(K\x01K\x02t.", kTuple), Ints({1, 2}));
  EXPECT_EQ(items_of("(K\x01K\x02l.", kList), Ints({1, 2}));
  EXPECT_EQ(items_of("]K\1aK\2a.", kList), Ints({1, 2}));
  EXPECT_EQ(items_of("](K\x01K\2e(K\3e.", kList), Ints({1, 2, 3}));
  EXPECT_EQ(items_of("(K\x01K\2d.", kDict), Ints({1, 2}));
  EXPECT_EQ(items_of("}K\x01K\x02s.", kDict), Ints({1, 2}));
  EXPECT_EQ(items_of("}(K\x01K\x02K\x03K\x04u.", kDict), Ints({1, 2, 3, 4}));
  EXPECT_EQ(items_of("\x8f(K\x01K\x02\x90.", kSet), Ints({1, 2}));
  EXPECT_EQ(items_of("(K\x01K\x02\x91.", kSet), Ints({1, 2}));
}

TEST(Pickle, KeepsTheItemsOfListsThatGrowByTurns) {
  // Two lists in the memo, each appended to a hundred times: their items must not mix.
  std::string bytes = "]q\x01]q\x02";
  for (int i = 0; i < 100; ++i) {
    bytes += "h\x01K"s + static_cast<char>(i) + "a0h\x02K" + static_cast<char>(100 + i) + "a0";
  }
  const Read read(bytes + "h\x01h\x02\x86.");
  for (std::size_t which : {0, 1}) {
    const auto items = read.pickle.items(read.pickle.items(read.root())[which]);
    ASSERT_EQ(items.size(), 100u);
    for (std::size_t i = 0; i < 100; ++i) {
      EXPECT_EQ(read.pickle[items[i]].integer, static_cast<std::int64_t>(100 * which + i));
    }
  }
}

TEST(Pickle, MakesInertObjectsOfEveryCall) {
  for (const std::string& pickle :
       {"cos\nsystem\n(K\x07tR."s, "cos\nsystem\n(K\x07t\x81."s, "cos\nsystem\n(K\x07t}\x92."s,
        "(K\x07ios\nsystem\n."s, "(cos\nsystem\nK\x07o."s,
        "\x8c\x02os\x8c\x06system\x93(K\x07tR."s}) {
    const Read read(pickle);
    ASSERT_EQ(read.root().kind, kObject) << pickle;
    EXPECT_EQ(read.pickle[read.root().callable].text, "os.system");
    const auto arguments = read.pickle.items(read.root().arguments);
    ASSERT_EQ(arguments.size(), 1u);
    EXPECT_EQ(read.pickle[arguments[0]].integer, 7);
    ASSERT_EQ(read.pickle.globals.size(), 1u);
  }
}

TEST(Pickle, KeepsStateAndItemsOfObjects) {
  const Read read("cm\nC\n)\x81K\x01K\x02s(K\x03K\x04u}b.");
  EXPECT_TRUE(read.root().pairs);
  EXPECT_EQ(read.pickle.items(read.root()).size(), 4u);
  EXPECT_EQ(read.pickle[read.root().state].kind, kDict);
}

TEST(Pickle, ReadsPersistentIds) {
  const Read binary("X\x01\0\0\0kQ."s), line("Pk\n.");
  for (const Read* read : {&binary, &line}) {
    EXPECT_EQ(read->root().kind, kPersistent);
    EXPECT_EQ(read->pickle[read->root().arguments].text, "k");
    EXPECT_EQ(read->pickle.persistents.size(), 1u);
  }
}

TEST(Pickle, RemembersByEveryOpcode) {
  const Read read(
      "\x80\x04K\x05\x94M\x06\x06p300\nM\x07\x07q\x20M\x08\x08r\x90\x01\0\0"
      "(h\0g300\nh\x20j\x90\x01\0\0t."s);
  EXPECT_EQ(read.item(0).integer, 5);
  EXPECT_EQ(read.item(1).integer, 0x606);
  EXPECT_EQ(read.item(2).integer, 0x707);
  EXPECT_EQ(read.item(3).integer, 0x808);
}

TEST(Pickle, DuplicatesAndDropsValuesAndMarks) {
  const Read twice("K\0012\x86.");
  EXPECT_EQ(twice.pickle.items(twice.root())[0], twice.pickle.items(twice.root())[1]);
  EXPECT_EQ(int_of("K\x01K\0020."), 1);
  EXPECT_EQ(int_of("K\x01(K\x02K\0031."), 1);
  EXPECT_EQ(int_of("K\x01(0."), 1);
}

TEST(Pickle, ParsesAListThatHoldsItself) {
  const Read read("]q\0h\0a."s);
  EXPECT_EQ(read.pickle.items(read.root())[0], read.pickle.root);
}

TEST(Pickle, StopsAtStop) { EXPECT_EQ(Read("\x80\x02N.garbage").pickle.size, 4u); }

TEST(Pickle, ReadsFrames) {
  EXPECT_EQ(int_of("\x80\x04\x95\x03\0\0\0\0\0\0\0K\x01."s), 1);
  expect_refused("\x80\x04\x95\x04\0\0\0\0\0\0\0K\x01."s, "FRAME at its byte 2: expected 4 more");
  expect_refused("\x80\x04\x95\x0a\0\0\0\0\0\0\0\x95\0\0\0\0\0\0\0\0."s, "another frame");
  expect_refused("\x80\x04\x95\x02\0\0\0\0\0\0\0J\1\0\0\0."s, "in its frame");
}

TEST(Pickle, NamesOpcodeAndByteOfWhatItRefuses) {
  expect_refused("", "at its byte 0: expected 1 more bytes, got 0");
  expect_refused("N", "at its byte 1: expected 1 more bytes, got 0");
  expect_refused(".", "STOP at its byte 0: expected 1 values on the stack, got 0");
  expect_refused("\x7f", "the byte 127");
  expect_refused("\x80\x06N.", "a protocol up to 5, got 6");
  expect_refused("NNa.", "APPEND at its byte 2: expected a list below, got None");
  expect_refused("](K\x01u.", "SETITEMS at its byte 4: expected a dict below, got list");
  expect_refused("}(K\x01u.", "expected keys with values");
  expect_refused("(K\1d.", "expected keys with values");
  expect_refused("N(N\x90.", "ADDITEMS at its byte 3: expected a set below, got None");
  expect_refused("K\x01t.", "TUPLE at its byte 2: expected a mark, got none");
  expect_refused("N(R.", "REDUCE at its byte 2: expected 2 values on the stack, got 0");
  expect_refused("(e.", "expected a value below a mark");
  expect_refused("NNb.", "BUILD at its byte 2: expected an object below, got None");
  expect_refused("NNR.", "REDUCE at its byte 2: expected a tuple of arguments, got None");
  expect_refused("NN\x93.", "STACK_GLOBAL at its byte 2: expected a string as name, got None");
  expect_refused("(o.", "OBJ at its byte 1: expected a class, got nothing");
  expect_refused("h\x01.", "BINGET at its byte 0: expected an index that was remembered, got 1");
  expect_refused("I1x\n.", "INT at its byte 0: expected decimal digits");
  expect_refused("F1.2.3\n.", "FLOAT at its byte 0: expected a number");
  expect_refused("S'a\n.", "STRING at its byte 0: expected a string in quotes");
  expect_refused("V\\u12\n.", "UNICODE at its byte 0: expected escapes");
  expect_refused("cos", "GLOBAL at its byte 0: expected the end of a line");
  expect_refused(
      "cm\nC\n)\x81"
      "K\1aK\x02K\x03s.",
      "SETITEM at its byte 14");
}

TEST(Pickle, RefusesOpcodesThatAreNoData) {
  for (const auto& [opcode, name] :
       std::vector<std::pair<std::string, std::string>>{{"\x82\x01", "EXT1"},
                                                        {"\x83\x01", "EXT2"},
                                                        {"\x84\x01", "EXT4"},
                                                        {"\x97", "NEXT_BUFFER"},
                                                        {"\x98", "READONLY_BUFFER"}}) {
    expect_refused("N" + opcode + ".", name + " at its byte 1: expected an opcode of data");
  }
}

TEST(Pickle, TakesNoMemoryForWhatIsOnlyDeclared) {
  expect_refused("\x8b\xff\xff\xff\xff."s, "LONG4 at its byte 0: expected 4294967295 more bytes");
  expect_refused("\x8d\xff\xff\xff\xff\xff\xff\xff\xff."s, "BINUNICODE8 at its byte 0");
  expect_refused("\x8e\xff\xff\xff\xff\xff\xff\xff\x7f."s, "BINBYTES8 at its byte 0");
  expect_refused("\x95\xff\xff\xff\xff\xff\xff\xff\xff."s, "FRAME at its byte 0");
  expect_refused("Nr\xff\xff\xff\xff."s, "LONG_BINPUT at its byte 1: expected an index near");
  expect_refused("Np99999999999999999999\n.", "PUT at its byte 1: expected a number");
  expect_refused("Np-1\n.", "PUT at its byte 1: expected a number");
}

TEST(Pickle, BoundsNestedMarks) {
  expect_refused(std::string(kMaxDepth + 1, '('), "expected at most 100 marks at a time");
  // Nesting without marks is no recursion here, however deep.
  const Read deep(std::string(10'000, ']') + std::string(9'999, 'a') + ".");
  EXPECT_EQ(deep.pickle.values.size(), 10'000u);
}

TEST(Pickle, SharesWhatIsTheSame) {
  // A value each would be 48 bytes for a byte of the pickle.
  const Read read("(" + std::string(1000, 'N') + std::string(1000, ')') + "t.");
  EXPECT_EQ(read.pickle.values.size(), 3u);
  std::string classes = "(";
  for (int i = 0; i < 1000; ++i) classes += "cm\nC\n";
  EXPECT_EQ(Read(classes + "t.").pickle.globals.size(), 1u);
}

TEST(Pickle, BoundsNamesPutTogetherFromFewBytes) {
  // Each STACK_GLOBAL would copy the long name.
  expect_refused("\x8c\x01m" + text(std::string(600, 'x')) + "\x93.", "expected a name below 512");
}

TEST(Pickle, BoundsLongNamesPutTogetherAgainAndAgain) {
  std::string bytes = text(std::string(250, 'm')) + "q\1" + text(std::string(250, 'n')) + "q\2";
  for (std::size_t i = 0; i <= kMaxNameBytes / 500; ++i)
    bytes +=
        "h\1h\2\x93"
        "0";
  expect_refused(bytes + ".", "bytes of names");
}

TEST(Pickle, BoundsOpcodes) {
  // A byte puts four into the stack, the memo or a list, whatever values there are.
  expect_refused("N" + std::string(kMaxPickleOpcodes, '2') + ".", "at most 32000000 opcodes");
}

/// One of nearly everything.
std::string small_pickle() {
  return whole(
      dict({{text("w"), tensor(float_storage("0", 6), 0, {2, 3}, {3, 1})},
            {integer(3), list({none(), boolean(true), "G\x3f\xf8\0\0\0\0\0\0"s, "C\x02zz"})},
            {text("n"), call(global("argparse", "Namespace"), {}) + dict({}) + "b"},
            {text("s"), "\x8f(K\x01\x90q\x01h\0010"}}));
}

TEST(Pickle, RefusesEveryPrefix) {
  const std::string bytes = small_pickle();
  ASSERT_EQ(Read(bytes).root().kind, kDict);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(read_pickle(std::string_view(bytes).substr(0, size)), FormatError) << size;
  }
}

TEST(Pickle, SurvivesEveryChangedByte) {
  // Under AddressSanitizer in the sanitizers' run.
  const std::string bytes = small_pickle();
  std::size_t read = 0, refused = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    for (int value = 0; value < 256; ++value) {
      changed[i] = static_cast<char>(value);
      try {
        const Read result(changed);
        EXPECT_LT(result.pickle.root, result.pickle.values.size());
        ++read;
      } catch (const FormatError&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(read, 0u);
  EXPECT_GT(refused, 0u);
}

}  // namespace
}  // namespace attn::formats
