#include "weights/formats/pickle.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "weights/formats/format_error.h"
#include "weights/formats/limits.h"
#include "weights/formats/pickle_builder.h"
#include "weights/formats/pickle_machine.h"
#include "weights/formats/pickle_scalars.h"
#include "weights/formats/pickle_text.h"

namespace attn::formats {
namespace {

using Index = PickleValue::Index;
using enum PickleKind;

[[noreturn]] void refuse(const std::string& expected, std::string_view got) {
  throw FormatError("expected " + expected + ", got " + std::string(got));
}

/// Runs a pickle, opcode by opcode. Nothing that it says is called.
class Machine {
 public:
  explicit Machine(std::string_view bytes) : bytes_(bytes) {}

  Pickle run() {
    do {
      begin_ = bytes_.position();
      opcode_ = '\0';
      try {
        if (++opcodes_ > kMaxPickleOpcodes) {
          refuse("at most " + std::to_string(kMaxPickleOpcodes) + " opcodes", "more");
        }
        opcode_ = static_cast<unsigned char>(bytes_.take(1)[0]);
        step();
      } catch (const FormatError& error) {
        std::string name(opcode_name(opcode_));
        if (!name.empty()) name += ' ';
        throw FormatError("pickle, " + name + "at its byte " + std::to_string(begin_) + ": " +
                          error.what());
      }
    } while (opcode_ != '.');
    builder_.pickle.size = bytes_.position();
    return std::move(builder_.pickle);
  }

 private:
  void step() {
    if (!scalar() && !container() && !object() && !stack_and_memo()) {
      const std::string_view name = opcode_name(opcode_);
      refuse("an opcode of data", name.empty() ? "the byte " + std::to_string(opcode_)
                                               : "one that Python's pickles of data lack");
    }
  }

  bool scalar() {
    const auto index = read_scalar(opcode_, bytes_, builder_);
    return index && push(*index);
  }

  bool container() {
    switch (opcode_) {
      case ')':
        return push(builder_.constant(kTuple));
      case ']':
        return push(builder_.container(kList, {}));
      case '}':
        return push(builder_.container(kDict, {}));
      case 0x8f:
        return push(builder_.container(kSet, {}));
      case 0x85:
      case 0x86:
      case 0x87:
        return replace(opcode_ - 0x84u, builder_.container(kTuple, stack_.top(opcode_ - 0x84u)));
      case 't':
        return replace_marked(builder_.container(kTuple, stack_.marked()));
      case 'l':
        return replace_marked(builder_.container(kList, stack_.marked()));
      case 'd':
        return replace_marked(builder_.container(kDict, stack_.marked()));
      case 0x91:
        return replace_marked(builder_.container(kSet, stack_.marked()));
      case 'a':
        builder_.append(stack_.top(2)[0], kList, stack_.top(1));
        return drop(1);
      case 's':
        builder_.set(stack_.top(3)[0], stack_.top(2));
        return drop(2);
      case 'e':
        builder_.append(stack_.below_mark(), kList, stack_.marked());
        return drop_marked();
      case 0x90:
        builder_.append(stack_.below_mark(), kSet, stack_.marked());
        return drop_marked();
      case 'u':
        builder_.set(stack_.below_mark(), stack_.marked());
        return drop_marked();
      default:
        return false;
    }
  }

  bool object() {
    switch (opcode_) {
      case 'c': {
        const std::string_view module = bytes_.line();
        return push(builder_.global(module, bytes_.line()));
      }
      case 0x93: {
        const auto names = stack_.top(2);
        for (const Index name : names) {
          if (kind(name) != kString) refuse("a string as name", name_of(kind(name)));
        }
        const auto text = [&](std::size_t i) { return builder_.pickle[names[i]].text; };
        return replace(2, builder_.global(text(0), text(1)));
      }
      case 'P':
        return push_persistent(builder_.string(bytes_.line()));
      case 'Q': {
        const Index id = stack_.top(1)[0];
        drop(1);
        return push_persistent(id);
      }
      case 'R':
      case 0x81: {
        const auto call = stack_.top(2);
        return replace(call.size(), call_of(call[0], call[1]));
      }
      case 0x92: {
        const auto call = stack_.top(3);
        if (kind(call[2]) != kDict) refuse("a dict of arguments", name_of(kind(call[2])));
        return replace(call.size(), call_of(call[0], call[1]));
      }
      case 'i': {
        const std::string_view module = bytes_.line();
        const Index callable = builder_.global(module, bytes_.line());
        return replace_marked(call_of(callable, builder_.container(kTuple, stack_.marked())));
      }
      case 'o': {
        const auto call = stack_.marked();
        if (call.empty()) refuse("a class", "nothing");
        return replace_marked(call_of(call[0], builder_.container(kTuple, call.subspan(1))));
      }
      case 'b':
        builder_.build(stack_.top(2)[0], stack_.top(1)[0]);
        return drop(1);
      default:
        return false;
    }
  }

  bool stack_and_memo() {
    switch (opcode_) {
      case 0x80:
        if (const auto protocol = bytes_.number(1); protocol > 5) {
          refuse("a protocol up to 5", std::to_string(protocol));
        }
        return true;
      case 0x95:
        bytes_.begin_frame(bytes_.number(8));
        return true;
      case '.':
        builder_.pickle.root = stack_.top(1)[0];
        return true;
      case '(':
        stack_.mark();
        return true;
      case '0':
        // As in Python, a mark where it is the topmost.
        if (stack_.at_mark()) return drop_marked();
        stack_.top(1);
        return drop(1);
      case '1':
        return drop_marked();
      case '2':
        return push(stack_.top(1)[0]);
      case 'g':
        return push(stack_.recall(bytes_.line_number()));
      case 'h':
        return push(stack_.recall(bytes_.number(1)));
      case 'j':
        return push(stack_.recall(bytes_.number(4)));
      case 'p':
        return remember(bytes_.line_number());
      case 'q':
        return remember(bytes_.number(1));
      case 'r':
        return remember(bytes_.number(4));
      case 0x94:
        stack_.remember_next(begin_);
        return true;
      default:
        return false;
    }
  }

  bool remember(std::uint64_t index) {
    stack_.remember(index, begin_);
    return true;
  }

  /// For callers that return whether they knew the opcode, as all below.
  bool push(Index value) {
    stack_.push(value);
    return true;
  }
  bool drop(std::size_t count) {
    stack_.drop(count);
    return true;
  }
  bool drop_marked() {
    stack_.drop_marked();
    return true;
  }
  bool replace(std::size_t count, Index value) {
    stack_.drop(count);
    return push(value);
  }
  bool replace_marked(Index value) {
    stack_.drop_marked();
    return push(value);
  }

  bool push_persistent(Index id) {
    const Index index = builder_.add({.kind = kPersistent, .arguments = id});
    builder_.pickle.persistents.push_back(index);
    return push(index);
  }

  Index call_of(Index callable, Index arguments) {
    if (kind(arguments) != kTuple) refuse("a tuple of arguments", name_of(kind(arguments)));
    return builder_.object(callable, arguments);
  }

  PickleKind kind(Index index) const { return builder_.pickle[index].kind; }

  PickleBytes bytes_;
  PickleStack stack_;
  PickleBuilder builder_;
  std::size_t begin_ = 0;
  std::size_t opcodes_ = 0;
  unsigned char opcode_ = '\0';
};

}  // namespace

Pickle read_pickle(std::string_view bytes) { return Machine(bytes).run(); }

}  // namespace attn::formats
