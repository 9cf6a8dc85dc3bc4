#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <list>
#include <numeric>
#include <random>

#include "trireme/core/atomic_file.h"
#include "trireme/core/error.h"
#include "trireme/io/checkpoint_reader.h"
#include "trireme/io/checksum.h"
#include "trireme/io/shard_writer.h"

namespace trireme::io {
namespace {

namespace fs = std::filesystem;

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.message();
  }
  return "";
}

// A box of a tensor's elements, and its bytes.
struct Box {
  Shape start;
  Shape extent;
};

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() : folder_(fs::temp_directory_path() / fmt::format("checkpoint_test-{}", ::getpid())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    storage_.resize((std::size_t{1} << 22) + kStagingAlignment);
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
    aligned_ = storage_.data() + (kStagingAlignment - address % kStagingAlignment) % kStagingAlignment;
  }
  ~CheckpointTest() override { fs::remove_all(folder_); }

  std::span<std::byte> staging(std::size_t bytes = std::size_t{1} << 20) { return {aligned_, bytes}; }

  // Element i of every tensor is i, as an int32.
  static std::vector<std::int32_t> numbered(const Shape& shape) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(shape.elements()));
    std::iota(values.begin(), values.end(), 0);
    return values;
  }

  std::span<const std::byte> cut(const Shape& whole, const Box& box) {
    std::vector<std::int32_t>& values = kept_.emplace_back();
    for (std::int64_t i = 0; i < box.extent.elements(); ++i) {
      std::int64_t rest = i;
      std::int64_t at = 0;
      std::int64_t stride = 1;
      for (int d = whole.rank() - 1; d >= 0; --d) {
        at += (box.start[d] + rest % box.extent[d]) * stride;
        rest /= box.extent[d];
        stride *= whole[d];
      }
      values.push_back(static_cast<std::int32_t>(at));
    }
    return std::as_bytes(std::span(values));
  }

  // A checkpoint of one tensor "t" in as many files as there are boxes.
  void write_boxes(const Shape& shape, const std::vector<Box>& boxes) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    CheckpointManifest manifest = about();
    for (std::size_t i = 0; i < boxes.size(); ++i) {
      const std::vector<ShardTensor> tensors = {
          {"t", {DType::i32, shape}, "weights", boxes[i].start, boxes[i].extent, cut(shape, boxes[i])}};
      write_shard(folder_, fmt::format("rank-{}.safetensors", i), tensors, staging(), {}, manifest);
    }
    write_manifest(manifest);
  }
  std::vector<std::int32_t> read_t() const {
    const CheckpointReader reader(folder_);
    std::vector<std::int32_t> values(static_cast<std::size_t>(reader.at("t").type.elements()), -1);
    reader.read(reader.at("t"), std::as_writable_bytes(std::span(values)));
    return values;
  }

  static CheckpointManifest about() {
    CheckpointManifest manifest;
    manifest.step = 7;
    manifest.samples = 28;
    manifest.order = "shuffled";
    manifest.seed = -3;
    manifest.config = "[model]\nfamily = \"gpt2\"\n";
    manifest.algorithms = "gemm 8x8 a\n";
    return manifest;
  }
  void write_manifest(const CheckpointManifest& manifest) const {
    write_text("manifest.json", manifest_text(manifest));
  }
  void write_text(const std::string& file, const std::string& text) const {
    std::ofstream(folder_ / file, std::ios::binary) << text;
  }
  void put_byte(const std::string& file, std::size_t at, char byte) const {
    std::fstream out(folder_ / file, std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(static_cast<std::streamoff>(at)).put(byte);
  }
  std::string read_text(const std::string& file) const {
    std::ifstream in(folder_ / file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  // The manifest with one text in place of another, and a checksum that fits.
  void change_manifest(const std::string& from, const std::string& to) const {
    std::string text = read_text("manifest.json");
    text.erase(text.rfind(",\n\"checksum\""));
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    const std::string sum = checksum_text(checksum(text));
    write_text("manifest.json", text + ",\n\"checksum\": \"" + sum + "\"\n}\n");
  }
  std::string refusal() const {
    return message_of([&] {
      CheckpointReader reader(folder_);
      ThreadPool pool(1);
      reader.verify(pool);
    });
  }

  fs::path folder_;
  std::list<std::vector<std::int32_t>> kept_;
  std::vector<std::byte> storage_;
  std::byte* aligned_ = nullptr;
};

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << text << "\" lacks \"" << part << "\"";
}

TEST_F(CheckpointTest, BringsEverythingBack) {
  // Sizes around the staging's blocks, nothing at all, and a scalar.
  const std::vector<std::int64_t> sizes = {0, 1, 3, 1023, 1024, 1025, 300'000};
  for (const std::size_t room : {std::size_t{4096}, std::size_t{8192}, std::size_t{1} << 22}) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    std::vector<ShardTensor> tensors;
    for (const std::int64_t size : sizes) {
      const Shape shape{size};
      tensors.push_back(
          {fmt::format("t{}", size), {DType::i32, shape}, "optimizer", {0}, shape, cut(shape, {{0}, shape})});
    }
    tensors.push_back({"scalar", {DType::i32, {}}, "scalars", {}, {}, cut({}, {{}, {}})});
    std::vector<int> copied(tensors.size(), 0);
    CheckpointManifest manifest = about();
    write_shard(
        folder_, "state.safetensors", tensors, staging(room), [&](std::size_t i) { ++copied[i]; }, manifest);
    EXPECT_EQ(copied, std::vector<int>(tensors.size(), 1));
    write_manifest(manifest);

    CheckpointReader reader(folder_);
    EXPECT_EQ(reader.manifest().step, 7);
    EXPECT_EQ(reader.manifest().samples, 28);
    EXPECT_EQ(reader.manifest().order, "shuffled");
    EXPECT_EQ(reader.manifest().seed, -3);
    EXPECT_EQ(reader.manifest().config, about().config);
    EXPECT_EQ(reader.manifest().algorithms, about().algorithms);
    ThreadPool pool(2);
    reader.verify(pool);
    ASSERT_EQ(reader.tensors().size(), tensors.size());
    for (const ShardTensor& t : tensors) {
      EXPECT_EQ(reader.at(t.name).type, t.type);
      EXPECT_EQ(reader.at(t.name).role, t.role);
      std::vector<std::byte> bytes(t.bytes.size());
      reader.read(reader.at(t.name), bytes);
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), t.bytes.begin())) << t.name << " with " << room;
    }
    expect_part(message_of([&] { reader.at("t30000"); }), "the nearest is \"t300000\"");
  }
}

TEST_F(CheckpointTest, CopiesAllBeforeTheFirstWriteWhereStagingIsWhole) {
  EXPECT_EQ(whole_staging(1), 4096U);
  EXPECT_EQ(whole_staging(5000), 8192U);
  EXPECT_EQ(whole_staging((1U << 20) + 1), 2U << 20);
}

TEST_F(CheckpointTest, SlicesOfAnyTilingMakeTheTensor) {
  std::mt19937 random(1);
  const auto up_to = [&](std::int64_t n) { return std::uniform_int_distribution<std::int64_t>(0, n)(random); };
  for (int round = 0; round < 20; ++round) {
    Shape shape;
    for (std::int64_t rank = up_to(4); shape.rank() < rank;) shape.push_back(1 + up_to(6));
    Shape zero = shape;
    for (int d = 0; d < zero.rank(); ++d) zero[d] = 0;
    std::vector<Box> boxes = {{zero, shape}};
    for (std::int64_t cuts = up_to(7); cuts > 0 && shape.rank() > 0; --cuts) {
      Box& box = boxes[static_cast<std::size_t>(up_to(static_cast<std::int64_t>(boxes.size()) - 1))];
      const auto d = static_cast<int>(up_to(shape.rank() - 1));
      Box rest = box;
      box.extent[d] = up_to(box.extent[d]);  // may be empty
      rest.start[d] += box.extent[d];
      rest.extent[d] -= box.extent[d];
      boxes.push_back(rest);
    }
    std::shuffle(boxes.begin(), boxes.end(), random);
    write_boxes(shape, boxes);
    ASSERT_EQ(read_t(), numbered(shape)) << "round " << round << ", " << shape.str() << " in " << boxes.size();
  }
}

TEST_F(CheckpointTest, SlicesThatDoNotTileAreRefusedByName) {
  write_boxes({4, 6}, {{{0, 0}, {4, 3}}, {{0, 3}, {3, 3}}});
  expect_part(refusal(), "tensor \"t\": its slices cover 21 of its 24 elements");
  write_boxes({4, 6}, {{{0, 0}, {4, 3}}, {{1, 2}, {3, 4}}});
  expect_part(refusal(), "overlaps the slice of rank-0.safetensors at [0,0] with extents [4,3]");
  // As many elements as the tensor has, and still no tiling.
  write_boxes({4}, {{{0}, {2}}, {{1}, {2}}});
  expect_part(refusal(), "overlaps");
  write_boxes({}, {{{}, {}}, {{}, {}}});
  expect_part(refusal(), "overlaps");
  write_boxes({4, 6}, {{{0, 0}, {4, 3}}, {{0, 4}, {4, 3}}});
  expect_part(refusal(), "the slice of rank-1.safetensors at [0,4] with extents [4,3] does not lie in [4,6]");
  write_boxes({4}, {{{0}, {4}}});
  change_manifest("\"start\":[0]", "\"start\":[4611686018427387000]");
  expect_part(refusal(), "does not lie in [4]");
  write_boxes({4}, {{{0}, {4}}});
  change_manifest("\"start\":[0]", "\"start\":[0,0]");
  expect_part(refusal(), "does not have the 1 dimensions of [4]");
  write_boxes({4}, {{{0}, {2}}, {{2}, {2}}});
  fs::remove(folder_ / "rank-1.safetensors");
  expect_part(refusal(), "rank-1.safetensors: cannot be opened");
}

TEST_F(CheckpointTest, ManifestsThatLieAreRefused) {
  const std::vector<std::array<std::string, 3>> lies = {
      {"\"format\": 4", "\"format\": 5", "has format 5; this version reads formats 2 to 4"},
      {"\"format\": 4", "\"format\": 1", "has format 1; this version reads formats 2 to 4"},
      {"\"step\": 7", "\"step\": -7", "\"step\" must hold whole numbers"},
      {"\"step\": 7", "\"step\": \"7\"", "\"step\" must be a whole number"},
      {"\"step\": 7", "\"step\": 8", "another step"},
      {"\"samples\":28", "\"sample\":28", "\"samples\" is missing"},
      {"\"counter\"", "\"stream\"", "random numbers of kind \"stream\""},
      {"rank-0.safetensors\": {", "../x\": {", "cannot be the name of a file"},
      {"rank-0.safetensors\": {", "manifest.json\": {", "cannot be the name of a file"},
      {"\"file\":\"rank-0.safetensors\"", "\"file\":\"other\"", "tensor \"t\": \"other\": the file is not listed"},
      {"\"dtype\":\"I32\"", "\"dtype\":\"X32\"", "tensor \"t\": dtype \"X32\" is not known"},
      {"\"dtype\":\"I32\"", "\"dtype\":\"F32\"", "tensor \"t\" is i32[4], the manifest says f32[4]"},
      {"\"shape\":[4]", "\"shape\":[4611686018427387000,9]", "tensor \"t\": its shape is too large"},
      {"\"shape\":[4]", "\"shape\":[1,1,1,1,1,1,1,1,4]", "more than 8 numbers"},
      {"\"t\": {", "\"u\": {", "there is no tensor \"u\""},
      {"\"bytes\":", "\"bytes\":1", "were written"},
  };
  for (const auto& [from, to, expected] : lies) {
    write_boxes({4}, {{{0}, {4}}});
    change_manifest(from, to);
    expect_part(refusal(), expected);
  }
  // A tensor that the manifest does not know.
  write_boxes({4}, {{{0}, {4}}});
  const std::string text = read_text("manifest.json");
  const std::size_t line = text.find("\n\"t\": ");
  change_manifest(text.substr(line, text.find("\n}", line) - line), "");
  expect_part(refusal(), "holds 1 tensors, the manifest names 0 of them");
}

// As the programs before wrote them, under the number of their format.
TEST_F(CheckpointTest, OlderFormatsAreRead) {
  write_boxes({4, 6}, {{{0, 0}, {4, 3}}, {{0, 3}, {4, 3}}});
  change_manifest("\"format\": 4", "\"format\": 2");
  change_manifest("\"algorithms\": \"gemm 8x8 a\\n\",\n", "");
  EXPECT_EQ(refusal(), "");
  EXPECT_EQ(read_t(), numbered({4, 6}));
  EXPECT_EQ(CheckpointReader(folder_).manifest().algorithms, "");
  // Later ones had several slices of a tensor in one file.
  CheckpointManifest manifest = about();
  const TensorType type{DType::i32, {4, 6}};
  const std::vector<ShardTensor> tensors = {{"t", type, "weights", {0, 0}, {4, 3}, cut({4, 6}, {{0, 0}, {4, 3}})},
                                            {.name = "t",
                                             .type = type,
                                             .role = "weights",
                                             .start = {0, 3},
                                             .extent = {4, 3},
                                             .bytes = cut({4, 6}, {{0, 3}, {4, 3}}),
                                             .number = 1}};
  fs::remove_all(folder_);
  fs::create_directories(folder_);
  write_shard(folder_, "state.safetensors", tensors, staging(), {}, manifest);
  write_manifest(manifest);
  EXPECT_NE(read_text("manifest.json").find("\"number\":1"), std::string::npos);
  EXPECT_EQ(refusal(), "");
  EXPECT_EQ(read_t(), numbered({4, 6}));
  change_manifest("\"format\": 4", "\"format\": 2");
  EXPECT_EQ(refusal(), "");
  EXPECT_EQ(read_t(), numbered({4, 6}));
}

TEST_F(CheckpointTest, OtherFormatsAndCutFilesAreDistinguished) {
  write_text("manifest.json", "{\"format\": 1, \"step\": 3, \"tensors\": {}}\n");
  EXPECT_EQ(refusal(), (folder_ / "manifest.json").string() + ": has format 1; this version reads formats 2 to 4");
  write_boxes({4}, {{{0}, {4}}});
  const std::string whole = read_text("manifest.json");
  for (std::size_t size = 0; size < whole.size(); ++size)
    expect_part(message_of([&] { parse_manifest(whole.substr(0, size)); }), "does not end in its checksum");
  const std::string data = read_text("rank-0.safetensors");
  write_text("rank-0.safetensors", data.substr(0, data.size() - 1));
  expect_part(refusal(),
              fmt::format("rank-0.safetensors: has {} bytes, but {} were written", data.size() - 1, data.size()));
  write_text("rank-0.safetensors", data + "x");
  expect_part(refusal(), "were written");
  fs::remove(folder_ / "manifest.json");
  expect_part(refusal(), "manifest.json: cannot be opened");
}

// Every bit of every file.
TEST_F(CheckpointTest, AnyFlippedBitIsFoundAndNamed) {
  CheckpointManifest manifest = about();
  const std::vector<ShardTensor> first = {
      {"wte.weight", {DType::i32, {6, 5}}, "weights", {0, 0}, {3, 5}, cut({6, 5}, {{0, 0}, {3, 5}})},
      {"wte.weight/m", {DType::i32, {7}}, "optimizer", {0}, {7}, cut({7}, {{0}, {7}})}};
  const std::vector<ShardTensor> second = {
      {"wte.weight", {DType::i32, {6, 5}}, "weights", {3, 0}, {3, 5}, cut({6, 5}, {{3, 0}, {3, 5}})}};
  write_shard(folder_, "rank-0.safetensors", first, staging(), {}, manifest);
  write_shard(folder_, "rank-1.safetensors", second, staging(), {}, manifest);
  write_manifest(manifest);
  ASSERT_EQ(refusal(), "");

  const auto tensor_at = [&](const std::string& file, std::size_t byte) -> std::string {
    if (file == "manifest.json") return "";
    const SafetensorsFile whole((folder_ / file).string());
    for (const auto& t : whole.tensors())
      if (byte >= t.offset && byte < t.offset + t.type.bytes()) return t.name;
    return "";
  };
  for (const std::string file : {"manifest.json", "rank-0.safetensors", "rank-1.safetensors"}) {
    const std::string whole = read_text(file);
    std::vector<std::string> tensors(whole.size());
    for (std::size_t i = 0; i < whole.size(); ++i) tensors[i] = tensor_at(file, i);
    for (std::size_t i = 0; i < whole.size(); ++i)
      for (int bit = 0; bit < 8; ++bit) {
        put_byte(file, i, static_cast<char>(whole[i] ^ (1 << bit)));
        const std::string refused = refusal();
        ASSERT_NE(refused.find(file), std::string::npos) << "bit " << bit << " of byte " << i << ": " << refused;
        if (!tensors[i].empty()) {
          ASSERT_NE(refused.find("\"" + tensors[i] + "\""), std::string::npos) << i << ": " << refused;
        }
        put_byte(file, i, whole[i]);
      }
  }
  EXPECT_EQ(refusal(), "");
}

// Reading alone checks what it reads.
TEST_F(CheckpointTest, DamageIsFoundWhenReadWithoutVerifying) {
  write_boxes({4}, {{{0}, {4}}});
  std::string data = read_text("rank-0.safetensors");
  data.back() = static_cast<char>(data.back() ^ 1);
  write_text("rank-0.safetensors", data);
  expect_part(message_of([&] { read_t(); }), "rank-0.safetensors: tensor \"t\": its checksum does not match");
}

TEST_F(CheckpointTest, AFileThatIsThereIsNotOverwritten) {
  write_text("state.safetensors", "mine");
  CheckpointManifest manifest = about();
  const std::vector<ShardTensor> tensors = {{"t", {DType::i32, {4}}, "weights", {0}, {4}, cut({4}, {{0}, {4}})}};
  expect_part(message_of([&] { write_shard(folder_, "state.safetensors", tensors, staging(), {}, manifest); }),
              "state.safetensors: File exists");
  EXPECT_EQ(read_text("state.safetensors"), "mine");
}

}  // namespace
}  // namespace trireme::io
