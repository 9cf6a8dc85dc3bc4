# Third-party parts. Each is used behind one thin file or in sources only; none appears in include/trireme.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(dnnl REQUIRED)
find_package(OpenMP REQUIRED)  # only to tell oneDNN that its callers bring the threads
find_package(nlohmann_json REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(CLI11 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8>=10.40)  # the first that knows the property White_Space
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
