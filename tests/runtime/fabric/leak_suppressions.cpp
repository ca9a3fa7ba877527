// UCX forgets some bytes where it cannot reach a peer by shared memory.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libuct"; }
