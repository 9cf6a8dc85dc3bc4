#include "trireme/io/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>

#include "support/source_dir.h"
#include "trireme/core/error.h"
#include "trireme/io/safetensors_header.h"

namespace trireme::io {
namespace {

namespace fs = std::filesystem;

class SafetensorsTest : public testing::Test {
 protected:
  SafetensorsTest() {
    std::string name = (fs::temp_directory_path() / "trireme-io-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    folder_ = name;
  }
  ~SafetensorsTest() override { fs::remove_all(folder_); }

  std::string path(const std::string& name = "a.safetensors") const { return (folder_ / name).string(); }

  std::string put(const std::string& bytes) const {
    fs::remove(path());  // some file systems flush a file that is truncated and written again
    std::ofstream(path(), std::ios::binary) << bytes;
    return path();
  }
  // A file of this header text and this many bytes of data.
  std::string put(const std::string& header, std::size_t data) const {
    const std::uint64_t length = header.size();
    std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
    return put(bytes + header + std::string(data, '\1'));
  }
  std::string contents() const {
    std::ifstream in(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator{}));
  }

  fs::path folder_;
};

std::string message_of(const std::function<void()>& f, Error::Kind kind) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    return e.message();
  }
  ADD_FAILURE() << "no error";
  return {};
}

std::string refusal(const std::string& path) {
  return message_of([&] { const SafetensorsFile file(path); }, Error::Kind::request);
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << text << "\" lacks \"" << part << "\"";
}

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

TEST_F(SafetensorsTest, ReturnsWhatWasWritten) {
  std::vector<std::byte> data(8 * 30);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i);
  const std::array all = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8,
                          DType::u8,  DType::u16, DType::i32, DType::i64};
  std::vector<TensorToWrite> tensors;
  for (DType dtype : all) {
    const TensorType type{dtype, {2, 3, 5}};
    tensors.push_back({std::string("t.") + name_of(dtype), type, std::span(data).first(type.bytes())});
  }
  tensors.push_back({"scalar", {DType::f32, {}}, std::span(data).first(4)});
  tensors.push_back({"empty", {DType::f64, {4, 0, 2}}, {}});
  tensors.push_back({"odd \"name\"\n\xc3\xa9/", {DType::u8, {1}}, std::span(data).first(1)});
  const std::map<std::string, std::string> metadata = {{"config", "{\"a\": \"\\u00e9\"}"}, {"", "empty key"}};
  write_safetensors(path(), tensors, metadata);

  const SafetensorsFile file(path());
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (const auto& written : tensors) {
    const auto& read = file.at(written.name);
    EXPECT_EQ(read.type, written.type) << written.name;
    const auto bytes = file.bytes(read);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), written.bytes.begin(), written.bytes.end())) << written.name;
    EXPECT_EQ(read.offset % size_of(read.type.dtype), 0U) << written.name;
  }
  EXPECT_EQ(file.find("t.f3"), nullptr);
}

TEST_F(SafetensorsTest, TheSameTensorsGiveTheSameBytes) {
  const std::vector<float> x = {1, 2, 3};
  std::vector<TensorToWrite> tensors = {{"b", {DType::f32, {3}}, bytes_of(x)},
                                        {"c", {DType::u8, {12}}, bytes_of(x)},
                                        {"a", {DType::f32, {1, 3}}, bytes_of(x)}};
  write_safetensors(path(), tensors);
  const std::string first = contents();
  std::swap(tensors[0], tensors[2]);
  write_safetensors(path(), tensors);
  EXPECT_EQ(contents(), first);
}

TEST_F(SafetensorsTest, AnEmptyFileOfTensorsIsAFile) {
  write_safetensors(path(), {});
  EXPECT_TRUE(SafetensorsFile(path()).tensors().empty());
}

TEST_F(SafetensorsTest, ReadsFloatsOfAnyType) {
  const std::vector<float> values = {0.0F, -1.5F, 65504.0F, 0.25F};
  std::vector<double> f64(values.begin(), values.end());
  std::vector<Float16> f16;
  std::vector<BFloat16> bf16;
  for (float v : values) f16.emplace_back(v), bf16.emplace_back(v);
  const Shape shape = {2, 2};
  const std::vector<std::int32_t> i32(4);
  write_safetensors(path(), std::vector<TensorToWrite>{{"f32", {DType::f32, shape}, bytes_of(values)},
                                                       {"f64", {DType::f64, shape}, bytes_of(f64)},
                                                       {"f16", {DType::f16, shape}, bytes_of(f16)},
                                                       {"bf16", {DType::bf16, shape}, bytes_of(bf16)},
                                                       {"i32", {DType::i32, shape}, bytes_of(i32)}});
  const SafetensorsFile file(path());
  std::vector<float> out(4);
  for (const char* name : {"f32", "f64", "f16"}) {
    file.read_f32(file.at(name), out);
    EXPECT_EQ(out, values) << name;
  }
  file.read_f32(file.at("bf16"), out);
  EXPECT_EQ(out, (std::vector<float>{0.0F, -1.5F, 65536.0F, 0.25F}));
  const auto message = message_of([&] { file.read_f32(file.at("i32"), out); }, Error::Kind::request);
  expect_contains(message, path());
  expect_contains(message, R"(tensor "i32": expected a float type, got i32[2,2])");
}

TEST_F(SafetensorsTest, ReadsUnalignedData) {
  const std::vector<float> values = {3.25F, -8.0F};
  std::string header = R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  if (header.size() % 2 == 0) header += ' ';
  put(header, 0);
  std::ofstream(path(), std::ios::binary | std::ios::app).write(reinterpret_cast<const char*>(values.data()), 8);
  const SafetensorsFile file(path());
  std::vector<float> out(2);
  file.read_f32(file.at("x"), out);
  EXPECT_EQ(out, values);
}

TEST_F(SafetensorsTest, ReadsFilesOfThePythonPackage) {
  const SafetensorsFile file(source_dir() + "/tests/reference/gpt2.safetensors");
  EXPECT_EQ(file.at("blocks.1.attn.qkv.weight").type, (TensorType{DType::f32, {3, 4, 8, 32}}));
  EXPECT_EQ(file.at("io/tokens").type, (TensorType{DType::i32, {2, 16}}));
  EXPECT_EQ(file.at("io/loss").type, (TensorType{DType::f32, {}}));
  float loss = 0;
  std::array<float, 10> losses{};
  file.read_f32(file.at("io/loss"), {&loss, 1});
  file.read_f32(file.at("io/losses"), losses);
  EXPECT_EQ(loss, losses[0]);
  EXPECT_GT(losses[0], losses[9]);
  expect_contains(file.metadata().at("config"), "\"family\": \"gpt2\"");
}

TEST_F(SafetensorsTest, TruthValuesAreBytes) {
  const SafetensorsFile file(put(R"({"mask":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})", 3));
  EXPECT_EQ(file.at("mask").type, (TensorType{DType::u8, {3}}));
  EXPECT_EQ(safetensors_name_of(DType::u8), "U8");
}

TEST_F(SafetensorsTest, AReleasedTensorCanBeReadAgain) {
  std::vector<float> x(5000);
  std::iota(x.begin(), x.end(), 1.0F);
  write_safetensors(path(), std::vector<TensorToWrite>{{"x", {DType::f32, {5000}}, bytes_of(x)}});
  const SafetensorsFile file(path());
  std::vector<float> back(x.size());
  for (int round = 0; round < 2; ++round) {
    std::fill(back.begin(), back.end(), 0.0F);
    file.read_f32(file.at("x"), back);
    EXPECT_EQ(back, x);
    file.release(file.at("x"), 0, 5000);
  }
}

// What a producer hands over in pieces is the file that the whole would have been.
TEST_F(SafetensorsTest, StreamedTensorsGiveTheSameFile) {
  const std::vector<float> x = {1, 2, 3};
  const std::vector<TensorToWrite> whole = {{"b", {DType::f32, {3}}, bytes_of(x)},
                                            {"a", {DType::u8, {12}}, bytes_of(x)}};
  write_safetensors(path(), whole);
  const std::string expected = contents();
  std::vector<TensorToStream> pieces;
  pieces.reserve(whole.size());
  for (const auto& tensor : whole)
    pieces.push_back({tensor.name, tensor.type, [&tensor](const TensorToStream::Take& take) {
                        for (std::size_t at = 0; at < tensor.bytes.size(); at += 5)
                          take(tensor.bytes.subspan(at, std::min<std::size_t>(5, tensor.bytes.size() - at)));
                      }});
  stream_safetensors(path(), pieces);
  EXPECT_EQ(contents(), expected);
  pieces[1].produce = [&](const TensorToStream::Take& take) { take(whole[1].bytes.first(11)); };
  expect_contains(message_of([&] { stream_safetensors(path(), pieces); }, Error::Kind::failure),
                  "tensor \"a\": 11 bytes given for u8[12]");
  EXPECT_EQ(contents(), expected);
}

TEST_F(SafetensorsTest, AMissingTensorIsRefusedWithTheNearestName) {
  const std::vector<float> x = {1};
  write_safetensors(path(), std::vector<TensorToWrite>{{"wte.weight", {DType::f32, {1}}, bytes_of(x)}});
  const SafetensorsFile file(path());
  const auto message = message_of([&] { file.at("wte.wieght"); }, Error::Kind::request);
  EXPECT_EQ(message, path() + ": there is no tensor \"wte.wieght\" (the nearest is \"wte.weight\")");
}

TEST_F(SafetensorsTest, MovesKeepTheMapping) {
  const std::vector<float> x = {7};
  write_safetensors(path(), std::vector<TensorToWrite>{{"x", {DType::f32, {1}}, bytes_of(x)}});
  SafetensorsFile first(path());
  SafetensorsFile second = std::move(first);
  write_safetensors(path(), {});
  SafetensorsFile third(path());
  third = std::move(second);
  float out = 0;
  third.read_f32(third.at("x"), {&out, 1});
  EXPECT_EQ(out, 7);
}

TEST_F(SafetensorsTest, RefusesWhatIsNotAFile) {
  EXPECT_EQ(refusal(path("none")), path("none") + ": cannot be opened: No such file or directory");
  EXPECT_EQ(refusal(folder_.string()), folder_.string() + ": is not a regular file");
}

TEST_F(SafetensorsTest, RefusesMalformedFiles) {
  const auto tensor = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return "{\"x\":{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}";
  };
  const std::string good = R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  const auto of = [](const std::string& dtype, std::size_t begin, std::size_t end) {
    return fmt::format(R"({{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", dtype, end - begin, begin, end);
  };
  struct Case {
    std::string header;
    std::size_t data;
    std::string message;
  };
  const std::vector<Case> cases = {
      {"", 0, "does not begin with {"},
      {" {}", 0, "does not begin with {"},
      {"[]", 0, "does not begin with {"},
      {"{", 0, "not valid JSON: byte 2"},
      {"{}}", 0, "not valid JSON: byte 3"},
      {"{\"x\":" + good + ",}", 4, "not valid JSON"},
      {std::string("{}\0", 3), 0, "byte 3 is zero"},
      {"{\"\xff\":1}", 0, "not valid JSON"},
      {"{\"x\":" + good + "}", 3, "tensor \"x\": data_offsets [0,4] do not lie in the 3 bytes of data"},
      {"{\"x\":" + good + "}", 6, "2 bytes at the end belong to no tensor"},
      {"{}", 1, "1 bytes at the end belong to no tensor"},
      {"{\"x\":" + good + ",\"x\":" + good + "}", 4, "tensor \"x\" appears twice"},
      {"{\"x\":" + good + ",\"y\":" + good + "}", 4, "tensor \"y\": overlaps tensor \"x\""},
      {"{\"x\":" + of("U8", 0, 4) + ",\"y\":" + of("I8", 3, 6) + "}", 6, "tensor \"y\": overlaps tensor \"x\""},
      {"{\"x\":" + of("U8", 0, 6) + ",\"y\":" + of("I8", 2, 4) + "}", 6, "tensor \"y\": overlaps tensor \"x\""},
      {"{\"x\":" + of("U8", 0, 2) + ",\"y\":" + of("U8", 3, 4) + "}", 4,
       "tensor \"y\": 1 bytes before it belong to no tensor"},
      {"{\"x\":" + of("U8", 1, 4) + "}", 4, "tensor \"x\": 1 bytes before it belong to no tensor"},
      {tensor("\"F8_E4M3\"", "[4]", "[0,4]"), 4, "tensor \"x\": dtype \"F8_E4M3\" is not supported"},
      {tensor("\"F8_E4M3\"", "[4]", "[0,4]"), 4, "tensor \"x\": dtype \"F8_E4M3\" is not supported"},
      {tensor("\"f32\"", "[1]", "[0,4]"), 4, "tensor \"x\": dtype \"f32\" is not supported"},
      {tensor("4", "[4]", "[0,4]"), 4, "tensor \"x\": dtype must be a string, not a number"},
      {tensor("[]", "[4]", "[0,4]"), 4, "tensor \"x\": dtype must be a string, not an array"},
      {tensor("\"U8\"", "4", "[0,4]"), 4, "tensor \"x\": shape must be an array of whole numbers, not a number"},
      {tensor("\"U8\"", "{}", "[0,4]"), 4, "tensor \"x\": shape must be an array of whole numbers, not an object"},
      {tensor("\"U8\"", "[-4]", "[0,4]"), 4, "tensor \"x\": shape must hold whole numbers, not a negative number"},
      {tensor("\"U8\"", "[4.0]", "[0,4]"), 4, "tensor \"x\": shape must hold whole numbers, not \"4.0\""},
      {tensor("\"U8\"", "[18446744073709551616]", "[0,4]"), 4, "shape must hold whole numbers"},
      {tensor("\"U8\"", "[[4]]", "[0,4]"), 4, "shape must hold whole numbers, not an array"},
      {tensor("\"U8\"", "[null]", "[0,4]"), 4, "shape must hold whole numbers, not null"},
      {tensor("\"U8\"", "[true]", "[0,4]"), 4, "shape must hold whole numbers, not a boolean"},
      {tensor("\"U8\"", "[1,1,1,1,1,1,1,1,4]", "[0,4]"), 4, "tensor \"x\": shape has more than 8 numbers"},
      {tensor("\"F32\"", "[4]", "[0,4]"), 4, "tensor \"x\": F32[4] takes 16 bytes, but data_offsets [0,4] give 4"},
      {tensor("\"F64\"", "[2305843009213693952]", "[0,0]"), 0,
       "tensor \"x\": shape [2305843009213693952] is too large"},
      {tensor("\"U8\"", "[9223372036854775808]", "[0,0]"), 0, "is too large"},
      {tensor("\"U8\"", "[4294967296,4294967296]", "[0,0]"), 0, "is too large"},
      {tensor("\"U8\"", "[0,4294967296,4294967296]", "[0,0]"), 0, "is too large"},
      {tensor("\"U8\"", "[4]", "[4,0]"), 4, "data_offsets [4,0] do not lie in"},
      {tensor("\"U8\"", "[4]", "[18446744073709551612,0]"), 4, "do not lie in"},
      {tensor("\"U8\"", "[4]", "[0]"), 4, "tensor \"x\": data_offsets must be two numbers"},
      {tensor("\"U8\"", "[4]", "[0,4,4]"), 4, "tensor \"x\": data_offsets must be two numbers"},
      {tensor("\"U8\"", "[4]", "\"0\""), 4, "data_offsets must be an array of whole numbers, not a string"},
      {R"({"x":{"dtype":"U8","shape":[0]}})", 0, "tensor \"x\": data_offsets is missing"},
      {R"({"x":{"shape":[0],"data_offsets":[0,0]}})", 0, "tensor \"x\": dtype is missing"},
      {R"({"x":{"dtype":"U8","data_offsets":[0,0]}})", 0, "tensor \"x\": shape is missing"},
      {R"({"x":{"dtype":"U8","dtype":"I8","shape":[0],"data_offsets":[0,0]}})", 0, "tensor \"x\": dtype appears twice"},
      {R"({"x":{"dtype":"U8","shape":[0],"shape":[0],"data_offsets":[0,0]}})", 0, "shape appears twice"},
      {R"({"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"scale":1}})", 0, "tensor \"x\": unknown key \"scale\""},
      {R"({"x":7})", 0, "\"x\" must be an object, not a number"},
      {R"({"x":[[[[[[[[[[]]]]]]]]]]})", 0, "\"x\" must be an object, not an array"},
      {R"({"__metadata__":"a"})", 0, "\"__metadata__\" must be an object, not a string"},
      {R"({"__metadata__":{"a":1}})", 0, "__metadata__: \"a\" must be a string, not a number"},
      {R"({"__metadata__":{"a":{}}})", 0, "__metadata__: \"a\" must be a string, not an object"},
      {R"({"__metadata__":{"a":"1","a":"2"}})", 0, "__metadata__: key \"a\" appears twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "__metadata__ appears twice"},
      {R"({"a\u001b[2J\n":7})", 0, R"("a\u001b[2J\n" must be an object)"},
  };
  for (const auto& c : cases) {
    const auto message = refusal(put(c.header, c.data));
    expect_contains(message, path() + ": ");
    expect_contains(message, c.message);
    EXPECT_EQ(message.find('\n'), std::string::npos) << c.header;
  }
}

TEST_F(SafetensorsTest, RefusesBadLengths) {
  put("");
  expect_contains(refusal(path()), "0 bytes are too few");
  put("1234567");
  expect_contains(refusal(path()), "7 bytes are too few");
  put(std::string("\x03\0\0\0\0\0\0\0{}", 10));
  expect_contains(refusal(path()), "the header has 3 bytes, but only 2 follow");
  put(std::string(16, '\xff'));
  expect_contains(refusal(path()), "header of 18446744073709551615 bytes, above 100000000");
  put(std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10));
  expect_contains(refusal(path()), "header of 100000001 bytes, above 100000000");
}

// Whatever a file holds, opening it either works or throws an Error.
TEST_F(SafetensorsTest, DamagedFilesNeverDoMoreThanThrow) {
  const std::vector<float> x = {1, 2, 3, 4, 5, 6};
  write_safetensors(
      path(),
      std::vector<TensorToWrite>{{"x", {DType::f32, {2, 3}}, bytes_of(x)}, {"y", {DType::u16, {12}}, bytes_of(x)}},
      {{"k", "v"}});
  const std::string whole = contents();
  const auto try_open = [&](const std::string& bytes) {
    put(bytes);
    try {
      const SafetensorsFile file(path());
      for (const auto& tensor : file.tensors()) {
        unsigned sum = 0;
        for (std::byte b : file.bytes(tensor)) sum += std::to_integer<unsigned>(b);
        EXPECT_LE(sum, 255U * file.bytes(tensor).size());
      }
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  EXPECT_TRUE(try_open(whole));
  for (std::size_t n = 0; n < whole.size(); ++n) EXPECT_FALSE(try_open(whole.substr(0, n))) << n;
  const std::string others = std::string("\0\x7f\xff{}[]\",:0129-e. \\", 19);
  for (std::size_t i = 0; i < whole.size(); ++i)
    for (char other : others) {
      std::string damaged = whole;
      damaged[i] = other;
      try_open(damaged);
    }
}

// Every bit of a file of ours.
TEST_F(SafetensorsTest, AnyFlippedBitIsFoundAndNamed) {
  const std::vector<float> wide = {1, 2, 3, 4, 5, 6};
  const std::vector<std::uint8_t> narrow = {7, 8, 9};
  const std::vector<TensorToWrite> tensors = {{"wide", {DType::f32, {2, 3}}, bytes_of(wide)},
                                              {"none", {DType::f32, {0}}, {}},
                                              {"narrow", {DType::u8, {3}}, bytes_of(narrow)}};
  write_safetensors(path(), tensors, {{"format", "pt"}});
  const auto all_of_it = [&] {
    const SafetensorsFile file(path());
    EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
    for (const auto& tensor : file.tensors()) file.verify(tensor);
  };
  all_of_it();
  const std::string whole = contents();
  const SafetensorsFile file(path());
  const auto change = [&](std::size_t at, char byte) {
    std::fstream out(path(), std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(static_cast<std::streamoff>(at)).put(byte);
  };
  for (std::size_t i = 0; i < whole.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      change(i, static_cast<char>(whole[i] ^ (1 << bit)));
      const std::string message = message_of(all_of_it, Error::Kind::request);
      expect_contains(message, path());
      for (const auto& tensor : file.tensors())
        if (i >= tensor.offset && i < tensor.offset + tensor.type.bytes())
          expect_contains(message, "tensor \"" + tensor.name + "\": its checksum does not match");
      change(i, whole[i]);
    }
  all_of_it();
}

TEST_F(SafetensorsTest, TheWriterRefusesWhatCannotBeRead) {
  const std::vector<float> x = {1, 2};
  const TensorToWrite good = {"x", {DType::f32, {2}}, bytes_of(x)};
  write_safetensors(path(), std::vector<TensorToWrite>{good});
  const std::string before = contents();
  const auto failure = [&](std::vector<TensorToWrite> tensors,
                           const std::map<std::string, std::string>& metadata = {}) {
    auto message = message_of([&] { write_safetensors(path(), tensors, metadata); }, Error::Kind::failure);
    expect_contains(message, path());
    return message;
  };
  expect_contains(failure({good, {"x", {DType::u8, {8}}, bytes_of(x)}}), "tensor \"x\" is given twice");
  expect_contains(failure({{"x", {DType::f32, {3}}, bytes_of(x)}}), "tensor \"x\": 8 bytes given for f32[3]");
  expect_contains(failure({{"x", TensorType::none(), {}}}), "tensor \"x\": 0 bytes given for none");
  expect_contains(failure({{"__metadata__", {DType::f32, {2}}, bytes_of(x)}}), "cannot be named __metadata__");
  expect_contains(failure({{"\xff", {DType::f32, {2}}, bytes_of(x)}}), "is not valid UTF-8");
  expect_contains(failure({good}, {{"k", "\xc3"}}), "is not valid UTF-8");
  EXPECT_EQ(contents(), before);
  EXPECT_EQ(files(), 1U);
}

TEST_F(SafetensorsTest, FailuresToWriteNameTheTarget) {
  const auto failure = [](const std::string& target) {
    return message_of([&] { write_safetensors(target, {}); }, Error::Kind::failure);
  };
  EXPECT_EQ(failure(path("none/a")), "cannot write " + path("none/a") + ": No such file or directory");
  fs::create_directory(folder_ / "b");
  expect_contains(failure(path("b")), "cannot write " + path("b") + ": Is a directory");
  EXPECT_EQ(files(), 1U);
}

}  // namespace
}  // namespace trireme::io
