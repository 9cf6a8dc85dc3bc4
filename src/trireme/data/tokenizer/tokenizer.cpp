#include "trireme/data/tokenizer/tokenizer.h"

#include <filesystem>
#include <fstream>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/data/tokenizer/byte_tokenizer.h"
#include "trireme/data/tokenizer/gpt2_files.h"
#include "trireme/data/tokenizer/json_tokenizer.h"
#include "trireme/data/tokenizer/utf8.h"

namespace trireme::data {

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, Specials specials) const {
  std::vector<std::int32_t> ids;
  encode(text, specials, ids);
  return ids;
}

std::optional<std::string> tokenizer_file(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code unknown;
  const fs::path whole = fs::path(folder) / "tokenizer.json";
  if (fs::exists(whole, unknown)) return whole.string();
  const fs::path vocab = fs::path(folder) / "vocab.json";
  if (fs::exists(vocab, unknown) && fs::exists(fs::path(folder) / "merges.txt", unknown)) return vocab.string();
  return std::nullopt;
}

std::vector<std::string> tokenizer_files(const std::string& spec) {
  namespace fs = std::filesystem;
  std::error_code unknown;
  const std::string file = fs::is_directory(spec, unknown) ? tokenizer_file(spec).value_or(spec) : spec;
  if (fs::path(file).filename() != "vocab.json") return {file};
  return {file, fs::path(file).replace_filename("merges.txt").string()};
}

std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& spec, const std::string& key) {
  if (spec == "bytes") return std::make_shared<ByteTokenizer>();
  if (spec == "none")
    refuse("{} = \"none\": text needs a tokenizer; give \"bytes\", a tokenizer.json or a folder that holds one", key);
  namespace fs = std::filesystem;
  std::error_code error;
  std::string path = spec;
  if (fs::is_directory(path, error)) path = tokenizer_file(path).value_or((fs::path(path) / "tokenizer.json").string());
  if (!fs::is_regular_file(path, error))
    refuse("{}: there is no tokenizer \"{}\": give \"bytes\", a tokenizer.json or a folder that holds one", key, path);
  constexpr std::uintmax_t most = std::uintmax_t{1} << 30;
  if (const auto bytes = fs::file_size(path, error); !error && bytes > most)
    refuse("{}: {} has {} bytes, too many for a tokenizer.json", key, path, bytes);
  if (fs::path(path).filename() == "vocab.json")
    return std::make_shared<JsonTokenizer>(gpt2_tokenizer_json(path), path);
  std::ifstream file(path, std::ios::binary);
  std::string json{std::istreambuf_iterator<char>(file), {}};
  if (!file) refuse("{}: cannot read {}", key, path);
  return std::make_shared<JsonTokenizer>(std::move(json), path);
}

void StreamDecoder::skip(std::span<const std::int32_t> ids) {
  for (const std::int32_t id : ids) push(id);
  waiting_.clear();
}

std::string StreamDecoder::push(std::int32_t id) {
  const std::string before = context_.empty() ? std::string() : tokenizer_->decode_bytes(context_, specials_);
  context_.push_back(id);
  const std::string after = tokenizer_->decode_bytes(context_, specials_);
  if (after.size() > before.size()) {
    waiting_ += std::string_view(after).substr(before.size());
    context_ = {id};
  }
  const std::size_t held = unfinished_utf8(waiting_);
  std::string ready = to_utf8(std::string_view(waiting_).substr(0, waiting_.size() - held));
  waiting_.erase(0, waiting_.size() - held);
  return ready;
}

std::string StreamDecoder::finish() {
  context_.clear();
  return to_utf8(std::exchange(waiting_, {}));
}

}  // namespace trireme::data
