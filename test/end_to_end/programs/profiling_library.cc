// Stands in for libcupti: what a profiler calls to begin.
extern "C" __attribute__((visibility("default"))) int cuptiActivityEnable(int kind) {
  return kind + 1;
}
