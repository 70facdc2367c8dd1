#include "weights/formats/listing.h"

#include <utility>

#include "weights/formats/format_error.h"
#include "weights/formats/limits.h"
#include "weights/formats/utf8.h"

namespace attn::formats {
namespace {

constexpr std::uint64_t kMostVisits = 16;
constexpr std::uint64_t kFewVisits = 10'000;

}  // namespace

Listing::Listing(const Pickle& pickle, StoredFile& file)
    : file_(file),
      visits_left_(kFewVisits + kMostVisits * (pickle.values.size() + pickle.pool.size())) {}

void Listing::add(StoredTensor tensor) {
  check_name(tensor.name);
  if (file_.tensors.size() >= kMaxTensors) {
    refuse("checkpoint", "at most " + std::to_string(kMaxTensors) + " tensors", "more");
  }
  if (!names_.insert(tensor.name).second) {
    refuse("tensor " + in_quotes(tensor.name), "one of this name", "two");
  }
  // A size and its stride take the memory of four values.
  visit(4 * tensor.sizes.size());
  file_.tensors.push_back(std::move(tensor));
}

void Listing::skip(const std::string& name, std::string_view what) {
  check_name(name);
  if (file_.skipped.size() >= kMaxTensors) {
    refuse("checkpoint", "at most " + std::to_string(kMaxTensors) + " other values", "more");
  }
  file_.skipped.push_back({name, std::string(what)});
}

void Listing::visit(std::uint64_t values) {
  if (values > visits_left_) {
    refuse("checkpoint", "values that are shared a few times", "the same ones again and again");
  }
  visits_left_ -= values;
}

void Listing::name_bytes(std::uint64_t bytes) {
  name_bytes_ += bytes;
  if (name_bytes_ > kMaxNameBytes) {
    refuse("checkpoint", "at most " + std::to_string(kMaxNameBytes) + " bytes of names", "more");
  }
}

void Listing::check_name(const std::string& name) {
  if (!is_utf8(name)) refuse("entry " + in_quotes(name), "a name in UTF-8", "lone surrogates");
  name_bytes(name.size());
}

}  // namespace attn::formats
