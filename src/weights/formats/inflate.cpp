#include "weights/formats/inflate.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>
#include <new>
#include <string>

#include "weights/formats/format_error.h"

namespace attn::formats {
namespace {

/// zlib counts in 32 bits.
uInt piece(std::uint64_t bytes) {
  return static_cast<uInt>(std::min<std::uint64_t>(bytes, std::numeric_limits<uInt>::max()));
}

/// A stream that is being inflated.
class Inflater {
 public:
  explicit Inflater(std::string_view deflated) : rest_(deflated) {
    // Negative: neither zlib's header nor its checksum.
    if (inflateInit2(&stream_, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&stream_); }

  /// Fills `to`, unless the stream ends before; says how many bytes came.
  std::uint64_t fill(std::span<char> to) {
    std::uint64_t done = 0;
    while (done < to.size() && !ended_) {
      stream_.next_out = reinterpret_cast<Bytef*>(to.data() + done);
      const uInt wanted = piece(to.size() - done);
      stream_.avail_out = wanted;
      advance();
      done += wanted - stream_.avail_out;
    }
    return done;
  }

  /// Expects the end of the stream, at the end of its bytes.
  void expect_end() {
    char more = 0;
    if (fill(std::span(&more, 1)) > 0)
      throw FormatError("deflated bytes: expected the size that was declared, got more");
    if (const std::size_t left = rest_.size() + stream_.avail_in; left > 0) {
      throw FormatError("deflated bytes: expected their end, got " + std::to_string(left) +
                        " bytes more");
    }
  }

 private:
  void advance() {
    if (stream_.avail_in == 0) {
      stream_.avail_in = piece(rest_.size());
      // zlib does not write here; its older interfaces lack the const.
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(rest_.data()));
      rest_.remove_prefix(stream_.avail_in);
    }
    const int result = ::inflate(&stream_, Z_NO_FLUSH);
    if (result == Z_MEM_ERROR) throw std::bad_alloc();
    if (result == Z_BUF_ERROR)  // no progress: nothing is left to read
      throw FormatError("deflated bytes: expected the end of the stream, got the end of its bytes");
    if (result != Z_OK && result != Z_STREAM_END) {
      throw FormatError(std::string("deflated bytes: broken, ") +
                        (stream_.msg != nullptr ? stream_.msg : "zlib does not say why"));
    }
    ended_ = result == Z_STREAM_END;
  }

  z_stream stream_ = {};
  std::string_view rest_;
  bool ended_ = false;
};

void expect_size(std::uint64_t expected, std::uint64_t got) {
  if (got < expected) {
    throw FormatError("deflated bytes: expected " + std::to_string(expected) + " bytes, got " +
                      std::to_string(got));
  }
}

}  // namespace

void inflate(std::string_view deflated, std::span<char> to, std::uint64_t skip) {
  Inflater inflater(deflated);
  std::array<char, 16384> skipped = {};
  for (std::uint64_t left = skip; left > 0;) {
    const std::uint64_t wanted = std::min<std::uint64_t>(left, skipped.size());
    const std::uint64_t got = inflater.fill(std::span(skipped).first(wanted));
    if (got < wanted) expect_size(skip, skip - left + got);
    left -= got;
  }
  expect_size(skip + to.size(), skip + inflater.fill(to));
  inflater.expect_end();
}

void inflate_start(std::string_view deflated, std::span<char> to) {
  expect_size(to.size(), Inflater(deflated).fill(to));
}

}  // namespace attn::formats
