#pragma once

#include <optional>

#include "weights/formats/pickle_builder.h"
#include "weights/formats/pickle_machine.h"

namespace attn::formats {

/// Makes the number, text or bytes of an opcode that pushes one; nothing for any other opcode.
std::optional<PickleValue::Index> read_scalar(unsigned char opcode, PickleBytes& bytes,
                                              PickleBuilder& builder);

}  // namespace attn::formats
