#include "trireme/device/tier_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <thread>

#include "support/folder.h"
#include "trireme/core/error.h"

namespace trireme::device {
namespace {

namespace fs = std::filesystem;

struct Pages {
  explicit Pages(std::size_t count) : size(count * TierFile::kPage) {
    data = static_cast<std::byte*>(::operator new (size, std::align_val_t{TierFile::kPage}));
  }
  ~Pages() { ::operator delete (data, std::align_val_t{TierFile::kPage}); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::span<std::byte> span() const { return {data, size}; }
  void fill(unsigned seed) const {
    for (std::size_t i = 0; i < size; ++i) data[i] = static_cast<std::byte>((i * 31 + i / 4096 + seed) & 0xFF);
  }
  std::byte* data;
  std::size_t size;
};

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.message();
  }
  return "fine";
}

TEST(TierFile, WhatIsWrittenIsReadWhateverTheSize) {
  const test::Folder folder;
  const TierFile file(folder.path(), 2000 * TierFile::kPage);
  TierChannel channel(file);
  for (const std::size_t pages : {1U, 3U, 255U, 256U, 257U, 1500U}) {
    const Pages out(pages);
    const Pages in(pages);
    out.fill(static_cast<unsigned>(pages));
    const std::size_t offset = (2000 - pages) * TierFile::kPage;
    channel.write(offset, out.span());
    channel.read(offset, in.span());
    EXPECT_EQ(std::memcmp(out.data, in.data, out.size), 0) << pages;
  }
}

TEST(TierFile, SeveralTransfersAtOnce) {
  const test::Folder folder;
  constexpr std::size_t kCopies = 40;
  constexpr std::size_t kMax = 1200;  // pages: more requests than are sent at once
  const TierFile file(folder.path(), kCopies * kMax * TierFile::kPage);
  TierChannel channel(file);
  std::vector<std::unique_ptr<Pages>> out;
  std::vector<std::unique_ptr<Pages>> in;
  for (std::size_t i = 0; i < kCopies; ++i) {
    const std::size_t pages = i % 7 == 3 ? kMax : 1 + i * 13 % 300;
    out.push_back(std::make_unique<Pages>(pages));
    in.push_back(std::make_unique<Pages>(pages));
    out.back()->fill(static_cast<unsigned>(i));
  }
  for (const bool writes : {true, false}) {
    std::vector<int> ended(kCopies, 0);
    const auto wait = [&] {
      const TierChannel::Ended e = channel.wait();
      EXPECT_EQ(e.error, "");
      ++ended.at(e.tag);
    };
    for (std::size_t i = 0; i < kCopies; ++i) {
      while (channel.on_their_way() == TierChannel::kAhead) wait();
      const std::size_t offset = i * kMax * TierFile::kPage;
      if (writes)
        channel.begin_write(i, offset, out[i]->span());
      else
        channel.begin_read(i, offset, in[i]->span());
    }
    while (channel.on_their_way() > 0) wait();
    EXPECT_EQ(ended, std::vector<int>(kCopies, 1));
  }
  for (std::size_t i = 0; i < kCopies; ++i) EXPECT_EQ(std::memcmp(out[i]->data, in[i]->data, out[i]->size), 0) << i;
}

TEST(TierFile, NothingIsInTheFolder) {
  const test::Folder folder;
  const TierFile file(folder.path(), 1 << 20);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(TierFile, ThreadsWithTheirOwnChannels) {
  const test::Folder folder;
  constexpr std::size_t kPages = 300;
  const TierFile file(folder.path(), 4 * kPages * TierFile::kPage);
  std::vector<std::thread> threads;
  std::array<bool, 4> same{};
  for (std::size_t t = 0; t < same.size(); ++t)
    threads.emplace_back([&, t] {
      TierChannel channel(file);
      const Pages out(kPages);
      const Pages in(kPages);
      same[t] = true;
      for (unsigned round = 0; round < 5; ++round) {
        out.fill(static_cast<unsigned>(t) * 7 + round);
        channel.write(t * out.size, out.span());
        channel.read(t * out.size, in.span());
        same[t] = same[t] && std::memcmp(out.data, in.data, out.size) == 0;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(same, (std::array<bool, 4>{true, true, true, true}));
}

TEST(TierFile, FoldersThatWillNotDo) {
  const test::Folder folder;
  const fs::path missing = fs::path(folder.path("missing"));
  EXPECT_EQ(message_of([&] { TierFile(missing, 1); }),
            fmt::format("offload_dir = \"{}\": there is no such folder", missing.string()));
  const std::string full = message_of([&] { TierFile(folder.path(), std::size_t{1} << 60); });
  EXPECT_NE(full.find(fmt::format("offload_dir = \"{}\": offloaded tensors need", folder.path())), std::string::npos)
      << full;
  EXPECT_TRUE(fs::is_empty(folder.path()));
  const std::string unwritable = message_of([] { TierFile("/proc", 1); });
  EXPECT_NE(unwritable.find("offload_dir = \"/proc\""), std::string::npos) << unwritable;
}

TEST(TierFile, TransfersAreOfWholePagesInsideTheFile) {
  const test::Folder folder;
  const TierFile file(folder.path(), 2 * TierFile::kPage);
  TierChannel channel(file);
  const Pages pages(2);
  EXPECT_NE(message_of([&] { channel.read(TierFile::kPage, pages.span()); }), "fine");
  EXPECT_NE(message_of([&] { channel.read(0, pages.span().first(100)); }), "fine");
}

}  // namespace
}  // namespace trireme::device
