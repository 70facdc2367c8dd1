#include <attn/weights.h>

#include <ostream>

#include "weights/formats/printable.h"

namespace attn {

using formats::printable;

std::ostream& operator<<(std::ostream& stream, const LoadReport& report) {
  stream << "loaded " << report.loaded.size() << ", missing " << report.missing.size()
         << ", unexpected " << report.unexpected.size() << ", mismatched "
         << report.mismatched.size() << ", skipped " << report.skipped.size();
  for (const std::string& name : report.missing) stream << "\n  missing: " << printable(name);
  for (const std::string& name : report.unexpected) stream << "\n  unexpected: " << printable(name);
  for (const auto& [name, expected, got] : report.mismatched) {
    stream << "\n  mismatched: " << printable(name) << ": expected " << expected << ", got " << got;
  }
  return stream;
}

WeightsError::WeightsError(std::string message, LoadReport report)
    : c10::Error(std::move(message)),
      report_(std::make_shared<const LoadReport>(std::move(report))) {}

}  // namespace attn
