#include "support/token_files.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <utility>

#include "support/folder.h"
#include "trireme/core/error.h"
#include "trireme/data/dataset.h"
#include "trireme/data/sampler.h"

namespace trireme::data {
namespace {

using test::counting;
using test::expect_contains;
using test::Folder;
using test::refusal;
using test::tokens_config;

TEST(Tokens, BothWidthsAndSeveralFiles) {
  const Folder folder;
  folder.write_tokens("a.bin", counting<std::uint32_t>(25, 100000));
  folder.write_tokens("b.bin", counting<std::uint32_t>(8, 100000));
  DataConfig config = tokens_config(folder.path("*.bin"));
  const Data data = open_data(config, {.context = 16, .vocab = 70000});
  ASSERT_EQ(data.train->samples(), 2);
  Batch batch;
  Sampler(data.train, Order::sequential, 1, 2).fill(0, {{1, 1}}, batch);
  EXPECT_EQ(batch.tokens, (std::vector<std::int32_t>{16, 17, 18, 19, 20, 21, 22, 23, 24, 0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(batch.targets.back(), 7);
  EXPECT_EQ(data.eval, nullptr);
}

// Read in another width, tokens are other tokens, and nothing fails: the loss just never falls as it should.
TEST(Tokens, WhatLooksLikeSomethingElseIsRefused) {
  const Folder folder;
  const auto refused = [&](const std::string& path, std::int64_t vocab = 50000) {
    return refusal([&] { open_data(tokens_config(path), {.context = 8, .vocab = vocab}); });
  };
  const std::string wide = folder.write_tokens("wide.bin", counting<std::uint32_t>(200, 300));
  expect_contains(refused(wide), "tokens: ");
  expect_contains(refused(wide), "wide.bin looks like uint32");
  expect_contains(refused(wide), "token_type = \"uint32\"");
  DataConfig config = tokens_config(wide);
  config.token_type = "uint32";
  EXPECT_EQ(open_data(config, {.context = 8, .vocab = 300}).train->samples(), 24);
  // A type that is given makes no other file of it.
  const auto refused_as = [&](const std::string& path, const char* type, std::int64_t vocab = 50000) {
    DataConfig given = tokens_config(path);
    given.token_type = type;
    return refusal([&] { open_data(given, {.context = 8, .vocab = vocab}); });
  };
  expect_contains(refused_as(wide, "uint16"), "wide.bin looks like uint32");

  const std::string widest = folder.write_tokens("widest.bin", counting<std::int64_t>(200, 300));
  expect_contains(refused(widest), "looks like int64");
  expect_contains(refused(widest, 70000), "looks like int64");
  for (const char* type : {"uint16", "uint32"})
    expect_contains(refused_as(widest, type),
                    "looks like int64 (the upper bytes of every eight are 0); set token_type = \"int64\"");
  config = tokens_config(widest);
  config.token_type = "int64";
  const Data read = open_data(config, {.context = 8, .vocab = 300});
  EXPECT_EQ(read.train->samples(), 24);
  Batch batch;
  Sampler(read.train, Order::sequential, 1, 1).fill(1, {{0, 1}}, batch);
  EXPECT_EQ(batch.tokens, (std::vector<std::int32_t>{8, 9, 10, 11, 12, 13, 14, 15}));
  std::vector<std::int64_t> huge(200, std::int64_t{5} << 32);
  expect_contains(refused_as(folder.write_tokens("huge.bin", huge), "int64"), "is not below vocab");
  std::string text;
  while (text.size() < 500) text += "Galères à trois rangs de rames.\n";
  expect_contains(refused(folder.write("book.txt", text)), "looks like text");
  expect_contains(refused(folder.write("a.npy", "\x93NUMPY\1" + std::string(200, '\0'))), "is a NumPy file");
  // Narrow tokens read as wide ones are far beyond the vocabulary.
  const std::string narrow = folder.write_tokens("narrow.bin", counting(200));
  expect_contains(refused(narrow, 70000), "set token_type = \"uint16\"");
  for (const char* type : {"uint32", "int64"})
    expect_contains(refused_as(narrow, type),
                    std::string("read as uint16 and not as ") + type + " its tokens are: set token_type = \"uint16\"");
  expect_contains(refused_as(wide, "int64"), "set token_type = \"uint32\"");
  // All zeros look like nothing in particular.
  const std::string zeros = folder.write_tokens("zeros.bin", std::vector<std::uint16_t>(200));
  EXPECT_EQ(open_data(tokens_config(zeros), {.context = 8, .vocab = 300}).train->samples(), 24);
}

// Ids below `below`, all of them equally often.
template <class T>
std::vector<T> spread_ids(std::size_t n, std::uint32_t below) {
  std::mt19937 random(7);
  std::vector<T> tokens(n);
  for (T& token : tokens) token = static_cast<T>(random() % below);
  return tokens;
}

std::string refused_tokens(const std::string& path, std::int64_t vocab, const char* type = "auto") {
  DataConfig config = tokens_config(path);
  config.token_type = type;
  return refusal([&] { open_data(config, {.context = 8, .vocab = vocab}); });
}

std::int64_t samples_of(const std::string& path, std::int64_t vocab, const char* type) {
  DataConfig config = tokens_config(path);
  config.token_type = type;
  return open_data(config, {.context = 8, .vocab = vocab}).train->samples();
}

// Ids above 65535 leave no zeros in the upper halves, only small numbers.
TEST(Tokens, WiderIdsOfLargeVocabulariesAreRecognised) {
  const Folder folder;
  const std::string u32 = folder.write_tokens("large.u32", spread_ids<std::uint32_t>(20000, 128000));
  const std::string i64 = folder.write_tokens("large.i64", spread_ids<std::int64_t>(20000, 128000));
  const char* second = "looks like uint32 (every second 16-bit number is small); set token_type = \"uint32\"";
  expect_contains(refused_tokens(u32, 65536), second);
  expect_contains(refused_tokens(u32, 128256, "uint16"), second);
  expect_contains(refused_tokens(i64, 65536), "looks like int64 (the upper bytes of every eight are small)");
  for (const char* type : {"uint16", "uint32", "auto"})
    expect_contains(refused_tokens(i64, 128256, type), "set token_type = \"int64\"");
  expect_contains(refused_tokens(u32, 128256, "int64"), "set token_type = \"uint32\"");
  EXPECT_EQ(samples_of(u32, 128256, "uint32"), 2499);
  EXPECT_EQ(samples_of(i64, 128256, "int64"), 2499);
  // Masked positions change nothing.
  std::vector<std::int64_t> masked = spread_ids<std::int64_t>(2000, 128000);
  for (std::size_t i = 0; i < masked.size(); i += 2) masked[i] = -100;
  expect_contains(refused_tokens(folder.write_tokens("masked.i64", masked), 65536), "looks like int64");
}

std::string bytes_of(const auto& tokens) {
  std::string bytes(tokens.size() * sizeof tokens[0], '\0');
  std::memcpy(bytes.data(), tokens.data(), bytes.size());
  return bytes;
}

// A copy that broke off, or a few bytes before the first token: what is read of it as uint16 would be half zeros.
TEST(Tokens, WiderTokensOfFilesThatAreNotWholeAreRecognised) {
  const Folder folder;
  const std::string u32 = bytes_of(spread_ids<std::uint32_t>(2000, 50000));
  const std::string i64 = bytes_of(spread_ids<std::int64_t>(2000, 50000));
  const std::string odd = "\x34\x12\x78\x56";
  const auto expect = [&](const std::string& bytes, const std::string& type) {
    const std::string path = folder.write("cut.bin", bytes);
    for (const char* given : {"auto", "uint16", "uint32"}) {
      if (given == type) continue;
      SCOPED_TRACE(fmt::format("{} bytes of {} as {}", bytes.size(), type, given));
      const std::string wrong = refused_tokens(path, 50000, given);
      expect_contains(wrong, "looks like " + type);
      expect_contains(wrong, "token_type = \"" + type + "\", and mend the file: its " + std::to_string(bytes.size()) +
                                 " bytes are no whole number of those");
    }
    expect_contains(refused_tokens(path, 50000, type.c_str()), "no whole number of");
  };
  for (const std::size_t more : {1, 2, 3}) {
    expect(u32 + u32.substr(0, more), "uint32");
    expect(odd.substr(0, more) + u32, "uint32");
  }
  for (const std::size_t more : {2, 4, 6}) expect(i64 + i64.substr(0, more), "int64");
  for (const std::size_t more : {2, 4}) expect(odd.substr(0, more) + i64, "int64");
  // Ids of a large vocabulary too.
  expect(bytes_of(spread_ids<std::uint32_t>(2000, 128000)) + odd.substr(0, 2), "uint32");
  // An odd number of 32-bit tokens is nothing else, and neither are narrow ones.
  EXPECT_GT(samples_of(folder.write("odd.bin", u32.substr(0, u32.size() - 4)), 70000, "auto"), 0);
  for (const std::uint32_t below : {5U, 32U, 65U, 256U, 50257U, 65536U})
    for (const std::size_t tokens : {33U, 34U, 35U, 4001U, 4002U, 4003U})
      EXPECT_GT(samples_of(folder.write_tokens("n.u16", spread_ids<std::uint16_t>(tokens, below)), 65536, "auto"), 0);
}

// Padding says nothing, wherever it is.
TEST(Tokens, WiderTokensBehindPaddingAreRecognised) {
  const Folder folder;
  constexpr std::size_t kPadding = 160 << 10;  // bytes
  const auto padded = [&](std::size_t before, const std::string& tokens, std::size_t behind) {
    return folder.write("padded.bin", std::string(before, '\0') + tokens + std::string(behind, '\0'));
  };
  const std::string u32 = bytes_of(spread_ids<std::uint32_t>(60000, 50000));
  for (const auto& [before, behind] : {std::pair{kPadding, std::size_t{0}}, {0, kPadding}, {kPadding, kPadding}}) {
    expect_contains(refused_tokens(padded(before, u32, behind), 50000), "looks like uint32");
    expect_contains(refused_tokens(padded(before, u32 + "xx", behind), 50000), "looks like uint32");
    const std::string narrow = bytes_of(spread_ids<std::uint16_t>(120000, 50000));
    EXPECT_GT(samples_of(padded(before, narrow, behind), 50000, "auto"), 0);
    EXPECT_GT(samples_of(padded(before, narrow + "xx", behind), 50000, "auto"), 0);
  }
  // Numbers that are few next to so much padding decide nothing.
  EXPECT_GT(
      samples_of(padded(kPadding, bytes_of(spread_ids<std::uint16_t>(3000, 50000)), 3 * kPadding + 2), 50000, "auto"),
      0);
}

TEST(Tokens, VocabularyIsNamedWhereTheTypeIsRight) {
  const Folder folder;
  std::vector<std::uint32_t> tokens = spread_ids<std::uint32_t>(20000, 127000);
  tokens[9000] = 127999;
  const std::string u32 = folder.write_tokens("large.u32", tokens);
  const std::string i64 = folder.write_tokens("large.i64", std::vector<std::int64_t>(tokens.begin(), tokens.end()));
  for (const std::string& wrong : {refused_tokens(u32, 65536, "uint32"), refused_tokens(i64, 65536, "int64")}) {
    expect_contains(wrong, "is not below vocab = 65536; set vocab = 128000 at least");
    EXPECT_EQ(wrong.find("token_type"), std::string::npos) << wrong;
  }
}

TEST(Tokens, NumbersThatAreNoIdsAreShownAsTheyAre) {
  const Folder folder;
  for (const std::int64_t number : {std::int64_t{-1}, std::int64_t{-100}, (std::int64_t{1} << 33) + 5}) {
    std::vector<std::int64_t> tokens = spread_ids<std::int64_t>(2000, 256);
    tokens[70] = number;
    const std::string path = folder.write_tokens("odd.i64", tokens);
    const std::string wrong = refused_tokens(path, 256, "int64");
    const std::string is = number < 0 ? "negative, and must be at least 0 and below" : "not below";
    expect_contains(wrong, "token " + std::to_string(number) + " at position 70 is " + is + " vocab = 256");
    expect_contains(wrong, "which no vocabulary has");
    EXPECT_EQ(wrong.find("token_type"), std::string::npos) << wrong;
    for (const char* type : {"auto", "uint16", "uint32"})
      expect_contains(refused_tokens(path, 65536, type), "looks like int64");
  }
}

TEST(Tokens, TypeThatIsGivenIsBelievedWithoutOverwhelmingEvidence) {
  const Folder folder;
  const auto every_second = [&](std::size_t n, std::uint16_t values, std::uint16_t between) {
    std::vector<std::uint16_t> tokens(n);
    for (std::size_t i = 0; i < n; ++i)
      tokens[i] = static_cast<std::uint16_t>(i % 2 == 0 ? i / 2 % values + 1 : i / 2 % between);
    return folder.write_tokens("narrow.u16", tokens);
  };
  // Few tokens, or few that differ with a number in between that is not 0.
  std::vector<std::uint16_t> few(4000);
  for (std::size_t i = 0; i < few.size(); i += 2) few[i] = static_cast<std::uint16_t>(i / 2 % 20 + 1);
  few[701] = 1;
  for (const std::string& path : {every_second(200, 1000, 1), folder.write_tokens("few.u16", few)})
    EXPECT_GT(samples_of(path, 2000, "uint16"), 0);
  expect_contains(refused_tokens(every_second(200, 1000, 1), 2000),
                  "to read it as uint16 all the same, set token_type = \"uint16\"");
  // Every second one 0 is enough, however few differ.
  for (const std::uint16_t values : std::vector<std::uint16_t>{1, 2, 20, 1000}) {
    const std::string path = every_second(4000, values, 1);
    expect_contains(refused_tokens(path, 2000, "uint16"), "looks like uint32 (every second 16-bit number is 0)");
    expect_contains(refused_tokens(path, 2000, "uint16"), "llm.c's header can say so");
    const std::string widest = folder.write_tokens("few.i64", spread_ids<std::int64_t>(4000, values + 1U));
    for (const char* type : {"uint16", "uint32"})
      expect_contains(refused_tokens(widest, 2000, type), "looks like int64");
  }
  // Small numbers in between that are not 0, and nothing that only a large vocabulary has.
  EXPECT_EQ(samples_of(every_second(4000, 1000, 32), 2000, "auto"), 499);
  // Narrow tokens of every kind of vocabulary.
  for (const std::uint32_t below : {5U, 32U, 65U, 256U, 50257U, 65536U})
    EXPECT_EQ(samples_of(folder.write_tokens("n.u16", spread_ids<std::uint16_t>(4000, below)), 65536, "auto"), 499);
}

TEST(Tokens, HeaderOfLlmc) {
  const Folder folder;
  std::vector<std::uint32_t> file(256);
  file[0] = 20240801;
  file[1] = 7;
  file[2] = 40;
  for (std::uint32_t i = 0; i < 40; ++i) file.push_back(i);
  const std::string path = folder.write_tokens("x.bin", file);
  Batch batch;
  const Data data = open_data(tokens_config(path), {.context = 8, .vocab = 1000});
  Sampler(data.train, Order::sequential, 1, 1).fill(0, {{0, 1}}, batch);
  EXPECT_EQ(batch.tokens, (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  file.pop_back();
  folder.write_tokens("x.bin", file);
  expect_contains(refusal([&] { open_data(tokens_config(path), {.context = 8, .vocab = 1000}); }),
                  "promises 40 tokens");
}

std::string megatron_index(char type, const std::vector<std::int32_t>& lengths,
                           const std::vector<std::int64_t>& offsets, const std::vector<std::int64_t>& documents) {
  std::string index("MMIDIDX\0\0\1\0\0\0\0\0\0\0", 17);
  const auto add = [&](const auto* data, std::size_t count) {
    index.append(reinterpret_cast<const char*>(data), count * sizeof *data);
  };
  const std::array<std::uint64_t, 2> counts = {lengths.size(), documents.size()};
  index += type;
  add(counts.data(), counts.size());
  add(lengths.data(), lengths.size());
  add(offsets.data(), offsets.size());
  add(documents.data(), documents.size());
  return index;
}

TEST(Tokens, IndexOfMegatron) {
  const Folder folder;
  const std::string path = folder.write_tokens("m.bin", counting<std::uint32_t>(40));
  folder.write("m.idx", megatron_index(4, {15, 0, 25}, {0, 60, 60}, {0, 1, 3}));
  const Data data = open_data(tokens_config(path), {.context = 8, .vocab = 1000});
  EXPECT_EQ(data.train->samples(), 4);
}

// As torch's tensors are written; what is no id is named by its place.
TEST(Tokens, IndexOfMegatronWithInt64) {
  const Folder folder;
  std::vector<std::int64_t> tokens = counting<std::int64_t>(40);
  const std::string path = folder.write_tokens("m.bin", tokens);
  folder.write("m.idx", megatron_index(5, {15, 0, 25}, {0, 120, 120}, {0, 1, 3}));
  const auto open = [&] { return open_data(tokens_config(path), {.context = 8, .vocab = 1000}); };
  Batch batch;
  const Data data = open();
  ASSERT_EQ(data.train->samples(), 4);
  Sampler(data.train, Order::sequential, 1, 1).fill(3, {{0, 1}}, batch);
  EXPECT_EQ(batch.tokens, (std::vector<std::int32_t>{24, 25, 26, 27, 28, 29, 30, 31}));
  EXPECT_EQ(batch.targets.back(), 32);
  for (const std::int64_t number : {std::int64_t{-1}, std::int64_t{1000}, std::int64_t{5} << 32}) {
    tokens[17] = number;
    folder.write_tokens("m.bin", tokens);
    const std::string is = number < 0 ? "negative, and must be at least 0 and below" : "not below";
    expect_contains(refusal(open), "token " + std::to_string(number) + " at position 17 is " + is + " vocab = 1000");
  }
}

TEST(Tokens, HostileIndexOfMegatron) {
  const Folder folder;
  const std::string path = folder.write_tokens("m.bin", counting<std::uint32_t>(40));
  const auto refused = [&](const std::string& index) {
    folder.write("m.idx", index);
    return refusal([&] { open_data(tokens_config(path), {.context = 8, .vocab = 1000}); });
  };
  const std::string good = megatron_index(4, {15, 25}, {0, 60}, {0, 2});
  const auto with = [&](std::size_t at, std::uint64_t value) {
    std::string changed = good;
    std::memcpy(changed.data() + at, &value, sizeof value);
    return changed;
  };
  expect_contains(refused(""), "not an index");
  expect_contains(refused("MMIDIDX"), "not an index");
  expect_contains(refused(with(0, 7)), "not an index");
  expect_contains(refused(with(9, 2)), "version 2");
  expect_contains(refused(megatron_index(3, {15, 25}, {0, 60}, {0, 2})), "type code 3 (int16)");
  expect_contains(refused(megatron_index(5, {15, 25}, {0, 120}, {0, 2})), "does not lie in the 160 bytes");
  expect_contains(refused(megatron_index(99, {15, 25}, {0, 60}, {0, 2})), "type code 99 are");
  expect_contains(refused(with(18, 3)), "the index has");
  expect_contains(refused(with(18, std::uint64_t{1} << 62)), "need more bytes");
  expect_contains(refused(with(26, std::uint64_t{1} << 61)), "need more bytes");
  // 12 * S wraps to a small number.
  expect_contains(refused(with(18, 0x5555555555555557)), "need more bytes");
  expect_contains(refused(megatron_index(4, {15, -25}, {0, 60}, {0, 2})), "sequence 1 (-25 tokens from byte 60)");
  expect_contains(refused(megatron_index(4, {15, 25}, {0, -60}, {0, 2})), "does not lie in the 160 bytes");
  expect_contains(refused(megatron_index(4, {15, 26}, {0, 60}, {0, 2})), "does not lie in the 160 bytes");
  expect_contains(refused(megatron_index(4, {15, 25}, {0, std::int64_t{1} << 62}, {0, 2})), "does not lie in");
  expect_contains(refused(megatron_index(4, {15, 24}, {0, 64}, {0, 2})), "begins at byte 64");
  expect_contains(refused(megatron_index(4, {15, 24}, {0, 60}, {0, 2})), "end at byte 156");
  expect_contains(refused(megatron_index(4, {}, {}, {})), "end at byte 0");
  folder.write("m.idx", good);
  EXPECT_EQ(open_data(tokens_config(path), {.context = 8, .vocab = 1000}).train->samples(), 4);
}

TEST(Tokens, UnknownVersionOfLlmc) {
  const Folder folder;
  std::vector<std::uint32_t> file(512);
  file[0] = 20240520;
  file[1] = 2;
  const std::string path = folder.write_tokens("x.bin", file);
  expect_contains(refusal([&] { open_data(tokens_config(path), {.context = 8, .vocab = 1000}); }), "version 2");
}

TEST(Tokens, ATypeThatTheHeaderContradictsIsRefused) {
  const Folder folder;
  std::vector<std::uint32_t> file(256 + 50, 7);
  file[0] = 20240520;
  file[1] = 1;
  file[2] = 100;  // of 16 bits
  const std::string path = folder.write_tokens("x.bin", file);
  EXPECT_GT(samples_of(path, 1000, "uint16"), 0);
  expect_contains(refused_tokens(path, 1000, "uint32"),
                  "its header says that its tokens are uint16, and token_type = \"uint32\"");
}

// Mapped, not read: 40 GiB cost nothing but address space.
TEST(Tokens, FileLargerThanMemory) {
  const Folder folder;
  const std::string path = folder.write("big.bin", "");
  constexpr std::uint64_t bytes = std::uint64_t{40} << 30;
  std::error_code error;
  std::filesystem::resize_file(path, bytes, error);
  if (error) GTEST_SKIP() << "no sparse files here: " << error.message();
  const std::vector<std::uint16_t> marks = {11, 12, 13, 14, 15};
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(bytes - 4 * 1024 * 2 - 2));
    file.write(reinterpret_cast<const char*>(marks.data()), static_cast<std::streamsize>(marks.size() * 2));
  }
  const Data data = open_data(tokens_config(path), {.context = 1024, .vocab = 50257});
  EXPECT_EQ(data.train->samples(), static_cast<std::int64_t>(bytes / 2 / 1024) - 1);
  Batch batch;
  const Sampler sampler(data.train, Order::sequential, 1, 1);
  sampler.fill(data.train->samples() - 4, {{0, 1}}, batch);
  EXPECT_EQ(batch.targets.back(), 12);
  EXPECT_EQ(batch.tokens.back(), 11);
  const Sampler shuffled(data.train, Order::shuffled, 1, 64);
  shuffled.fill(1'000'000, {{0, 64}}, batch);
  EXPECT_EQ(batch.tokens.size(), 64U * 1024);
}

TEST(Tokens, TailIsHeldOut) {
  const Folder folder;
  DataConfig config = tokens_config(folder.write_tokens("t.bin", counting(1000)));
  config.holdout = 0.1;
  const Data data = open_data(config, {.context = 9, .vocab = 1000});
  EXPECT_EQ(data.train->samples(), 99);
  ASSERT_NE(data.eval, nullptr);
  Batch batch;
  Sampler(data.eval, Order::sequential, 1, 1).fill(0, {{0, 1}}, batch);
  EXPECT_EQ(batch.tokens[0], 900);
}

TEST(Tokens, BadInput) {
  const Folder folder;
  const SampleShape shape{.context = 8, .vocab = 100};
  const auto refused = [&](const std::string& path, const SampleShape& s) {
    return refusal([&] { open_data(tokens_config(path), s); });
  };
  expect_contains(refused(folder.path("none.bin"), shape), "there is no file");
  expect_contains(refused(folder.path("*.none"), shape), "no file matches");
  expect_contains(refused(folder.path(), shape), "is a folder");
  expect_contains(refused(folder.path("x.bin@0.7"), shape), "there is no file " + folder.path("x.bin"));
  expect_contains(refused(folder.path("x.bin@0"), shape), "must be a number above 0");
  expect_contains(refused(folder.path("x.bin@1e999"), shape), "must be a number above 0");
  expect_contains(refused(folder.path("x.bin@0.5x"), shape), "must be a number above 0");
  expect_contains(refused(folder.path("x@home.bin"), shape), "there is no file " + folder.path("x@home.bin"));
  expect_contains(refused(folder.write("empty.bin", ""), shape), "holds no tokens");
  expect_contains(refused(folder.write("odd.bin", "abc"), shape), "no whole number of 2-byte tokens");
  expect_contains(refused(folder.write_tokens("short.bin", counting(8)), shape), "context = 8");
  std::vector<std::uint16_t> tokens = counting(50);
  tokens[17] = 100;
  expect_contains(refused(folder.write_tokens("big.bin", tokens), shape),
                  "big.bin: token 100 at position 17 is not below vocab = 100");
  expect_contains(refused(folder.path("big.bin"), {.context = 8}), "vocab must be given");
}

TEST(Tokens, BadTokenFarInsideIsFoundWhenRead) {
  const Folder folder;
  std::vector<std::uint16_t> tokens(1 << 21, 1);
  tokens[2096000] = 65535;
  const Data data = open_data(tokens_config(folder.write_tokens("t.bin", tokens)), {.context = 1024, .vocab = 100});
  Batch batch;
  try {
    Sampler(data.train, Order::sequential, 1, 1).fill(data.train->samples() - 1, {{0, 1}}, batch);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), Error::Kind::failure);
    expect_contains(e.message(), "token 65535 at position 2096000");
  }
}

}  // namespace
}  // namespace trireme::data
