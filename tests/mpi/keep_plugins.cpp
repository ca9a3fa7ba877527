// For executables with sanitizers. Open MPI and UCX load plugins and unload them at the end, before
// leaks are looked for. What a plugin leaked then has no name that lsan.supp could know, so plugins
// stay.
extern "C" int dlclose(void* /*handle*/) noexcept;
extern "C" int dlclose(void* /*handle*/) noexcept { return 0; }
