#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "weights/formats/format_error.h"

namespace attn::formats {

/// The text of the FormatError that the call throws; empty where it throws none.
template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
    return "";
  } catch (const FormatError& error) {
    return error.what();
  }
}

/// Refused, with a text that has the two parts.
template <class Call>
void expect_refused(const Call& call, std::string_view place, std::string_view rule) {
  const std::string text = refusal(call);
  EXPECT_NE(text, "") << "accepted, where \"" << rule << "\" was expected";
  EXPECT_NE(text.find(place), std::string::npos) << text << "\nlacks " << place;
  EXPECT_NE(text.find(rule), std::string::npos) << text << "\nlacks " << rule;
}

}  // namespace attn::formats
