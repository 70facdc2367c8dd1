/// Replaces MKL's question whether the CPU is Intel's. On others MKL computes with AVX2 even where
/// the CPU has AVX-512; with this answer it uses what there is.
extern "C" __attribute__((visibility("default"))) int mkl_serv_intel_cpu_true() { return 1; }
