#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "support/source_dir.h"
#include "trireme/core/error.h"

namespace trireme::io {

// A folder of the test's own, to put files into and spoil them.
class HfFolder : public testing::Test {
 protected:
  HfFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "trireme-hf-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    folder_ = name;
  }
  ~HfFolder() override { std::filesystem::remove_all(folder_); }

  // Begins with the files of one of tests/huggingface.
  void copy(const std::string& name) const {
    const auto from = std::filesystem::path(source_dir()) / "tests" / "huggingface" / name;
    using Options = std::filesystem::copy_options;
    std::filesystem::copy(from, folder_, Options::recursive | Options::overwrite_existing);
  }
  void put(const std::string& name, const std::string& text) const {
    std::ofstream(std::filesystem::path(folder_) / name, std::ios::binary) << text;
  }
  std::string get(const std::string& name) const {
    std::ifstream in(std::filesystem::path(folder_) / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  // What a refusal says.
  static std::string refusal(const std::function<void()>& f) {
    try {
      f();
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), Error::Kind::request) << e.what();
      return e.message();
    }
    ADD_FAILURE() << "nothing was refused";
    return {};
  }

  std::string folder_;
};

}  // namespace trireme::io
