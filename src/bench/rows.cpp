#include "bench/rows.h"

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <sstream>
#include <string_view>

namespace attn::bench {
namespace {

bool is_layer(const Row& row) { return row.subject != Subject::kAttention; }

bool is_decoding(const Row& row) { return row.L == 1 && row.S > 1; }

std::string short_name(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return "fp32";
    case at::kDouble:
      return "fp64";
    case at::kHalf:
      return "fp16";
    case at::kBFloat16:
      return "bf16";
    default:
      TORCH_CHECK(false, "[rows] dtype: expected a dtype of attention, got ", dtype);
  }
}

/// "fp32 B8 T512 D64 causal": the dtype, what the shape deviates in from one batch of eight heads with
/// as many keys as queries, and `what` is special.
std::string name_of(const Row& row, std::string_view what) {
  std::ostringstream name;
  name << short_name(row.dtype);
  if (row.B != 1) name << " B" << row.B;
  if (row.H != row.Hk) name << " H" << row.H << " over " << row.Hk;
  name << (row.L == row.S ? " T" : " S") << row.S;
  name << (is_layer(row) ? " E" : " D") << (is_layer(row) ? row.H * row.D : row.D);
  if (row.Dv != row.D) name << " Dv" << row.Dv;
  if (!what.empty()) name << " " << what;
  return name.str();
}

Row named(std::string group, Row row, std::string_view what = "") {
  row.group = std::move(group);
  row.name = name_of(row, what);
  return row;
}

void add_prefill(std::vector<Row>& rows) {
  const auto add = [&](at::ScalarType dtype, int64_t T, int64_t D, bool causal = false) {
    const MaskKind mask = causal ? MaskKind::kCausal : MaskKind::kNone;
    rows.push_back(named("prefill", {.dtype = dtype, .L = T, .S = T, .D = D, .Dv = D, .mask = mask},
                         causal ? "causal" : ""));
  };
  for (const int64_t T : {128, 256, 512, 1024, 2048}) {
    add(at::kFloat, T, 64);
    add(at::kFloat, T, 64, true);
  }
  add(at::kFloat, 2048, 128);
  add(at::kFloat, 2048, 32);
  add(at::kBFloat16, 512, 64);
  add(at::kBFloat16, 2048, 64);
  add(at::kBFloat16, 2048, 64, true);
  add(at::kBFloat16, 2048, 128);
  add(at::kBFloat16, 2048, 32);
  add(at::kHalf, 512, 64);
  add(at::kHalf, 2048, 64);
}

void add_masks(std::vector<Row>& rows) {
  const auto add = [&](int64_t T, MaskKind mask, const char* what) {
    rows.push_back(named("masks", {.L = T, .S = T, .mask = mask}, what));
  };
  add(512, MaskKind::kBool, "bool");
  add(512, MaskKind::kBoolPerHead, "bool per head");
  add(512, MaskKind::kKeyPadding, "key padding");
  add(512, MaskKind::kBias, "additive");
  add(512, MaskKind::kBiasPerHead, "additive per head");
  add(2048, MaskKind::kBias, "additive");
}

void add_small(std::vector<Row>& rows) {
  const auto add = [&](int64_t B, int64_t T) {
    rows.push_back(named("small", {.B = B, .L = T, .S = T}));
  };
  add(32, 32);
  add(32, 64);
  add(8, 16);
  for (const int64_t T : {1, 2, 4, 8, 16}) add(1, T);
}

void add_decoding(std::vector<Row>& rows) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    rows.push_back(named("decode", {.dtype = dtype, .S = 2048}, "in cache"));
    rows.push_back(
        named("decode", {.dtype = dtype, .B = 8, .S = 4096, .D = 128, .Dv = 128}, "from DRAM"));
    rows.push_back(named("decode", {.dtype = dtype, .H = 32, .S = 4096, .D = 128, .Dv = 128}));
  }
}

void add_layers(std::vector<Row>& rows) {
  for (const int64_t T : {128, 512, 2048}) {
    rows.push_back(
        named("layer", {.subject = Subject::kProjectedLayer, .L = T, .S = T}, "Projected"));
    rows.push_back(named(
        "layer", {.subject = Subject::kCausalLayer, .L = T, .S = T, .mask = MaskKind::kCausal},
        "Causal"));
  }
}

void add_others(std::vector<Row>& rows) {
  rows.push_back(named("other", {.dtype = at::kDouble, .L = 512, .S = 512}));
  rows.push_back(named("other", {.L = 512, .S = 512, .Dv = 128}));
  rows.push_back(named("other", {.L = 512, .S = 512, .logit_clip = 10.0}, "logit clip"));
}

void add_training(std::vector<Row>& rows) {
  const auto backward = [&](at::ScalarType dtype, int64_t T, int64_t D, bool causal = false) {
    Row row = {.dtype = dtype, .L = T, .S = T, .D = D, .Dv = D, .pass = Pass::kBackward};
    if (causal) row.mask = MaskKind::kCausal;
    rows.push_back(named("training backward", row, causal ? "causal" : ""));
  };
  for (const int64_t T : {128, 512, 2048}) {
    backward(at::kFloat, T, 64);
    backward(at::kFloat, T, 64, true);
  }
  backward(at::kBFloat16, 512, 64);
  backward(at::kBFloat16, 2048, 64);
  backward(at::kBFloat16, 2048, 64, true);
  backward(at::kBFloat16, 2048, 128);
  for (const int64_t T : {512, 2048}) {
    rows.push_back(named("training forward", {.L = T, .S = T, .dropout_p = 0.1}, "dropout"));
  }
  const auto step = [&](Subject subject, MaskKind mask, const char* what) {
    rows.push_back(
        named("training step",
              {.subject = subject, .L = 512, .S = 512, .mask = mask, .pass = Pass::kStep}, what));
  };
  step(Subject::kAttention, MaskKind::kBiasPerHead, "learned bias per head");
  step(Subject::kProjectedLayer, MaskKind::kNone, "Projected");
  step(Subject::kCausalLayer, MaskKind::kCausal, "Causal");
}

/// Flops of attention for each score and feature, of query and key or of value.
struct FlopsAScore {
  double head = 0.0;
  double value = 0.0;
};

FlopsAScore flops_a_score(Pass pass) {
  constexpr FlopsAScore kForward = {2.0, 2.0};   // Q·Kᵀ; P·V
  constexpr FlopsAScore kBackward = {6.0, 4.0};  // Q·Kᵀ, dS·K, dSᵀ·Q; dO·Vᵀ, Pᵀ·dO
  switch (pass) {
    case Pass::kForward:
      return kForward;
    case Pass::kBackward:
      return kBackward;
    case Pass::kStep:
      return {kForward.head + kBackward.head, kForward.value + kBackward.value};
  }
  return {};
}

/// Products with a layer's weights for each map of it.
double products_a_map(Pass pass) {
  switch (pass) {
    case Pass::kForward:
      return 1.0;
    case Pass::kBackward:
      return 2.0;  // for the gradients of the input and of the weight
    case Pass::kStep:
      return 3.0;
  }
  return 0.0;
}

}  // namespace

const std::vector<Row>& rows() {
  static const std::vector<Row> all = [] {
    std::vector<Row> rows;
    add_prefill(rows);
    add_masks(rows);
    add_small(rows);
    add_decoding(rows);
    add_layers(rows);
    add_others(rows);
    add_training(rows);
    return rows;
  }();
  return all;
}

std::string full_name(const Row& row) { return row.group + "/" + row.name; }

std::string unit(const Row& row) { return is_decoding(row) ? "GB/s" : "GFLOP/s"; }

double work(const Row& row) {
  const auto size = [](int64_t n) { return static_cast<double>(n); };
  if (is_decoding(row)) {
    const double elements = size(row.B * row.Hk * row.S) * size(row.D + row.Dv);
    return elements * size(c10::elementSize(row.dtype)) * 1e-9;
  }
  const FlopsAScore flops = flops_a_score(row.pass);
  const double attention =
      size(row.B * row.H * row.L * row.S) * (flops.head * size(row.D) + flops.value * size(row.Dv));
  if (!is_layer(row)) return attention * 1e-9;
  constexpr double kMaps = 4.0;  // of query, key, value and output, E × E each
  const double E = size(row.H * row.D);
  const double product = 2.0 * size(row.B * row.L) * E * E;
  return (attention + kMaps * products_a_map(row.pass) * product) * 1e-9;
}

double open_share(const Row& row) {
  if (row.mask != MaskKind::kCausal) return 1.0;
  Row square = row;
  square.subject = Subject::kAttention;
  const double open = static_cast<double>(row.L + 1) / static_cast<double>(2 * row.L);  // L = S
  return 1.0 - (1.0 - open) * work(square) / work(row);
}

}  // namespace attn::bench
