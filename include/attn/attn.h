#pragma once

/// The whole public interface of `attn`.

#include <attn/backend.h>
#include <attn/functional.h>
#include <attn/mask.h>
#include <attn/modules/causal_multihead_attention.h>
#include <attn/modules/einsum_multihead_attention.h>
#include <attn/modules/projected_multihead_attention.h>
#include <attn/modules/xavier_multihead_attention.h>
#include <attn/version.h>
#include <attn/weights.h>
