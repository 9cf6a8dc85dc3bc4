#include <nlohmann/json.hpp>

#include <cstdio>
#include <filesystem>
#include <iostream>

#include "trireme/cli/commands.h"
#include "trireme/cli/work_progress.h"
#include "trireme/core/atomic_file.h"
#include "trireme/core/cgroup.h"
#include "trireme/core/error.h"
#include "trireme/core/json.h"
#include "trireme/core/text.h"
#include "trireme/data/encode_documents.h"
#include "trireme/data/token_files.h"
#include "trireme/data/token_writer.h"
#include "trireme/data/tokenizer/known_patterns.h"
#include "trireme/data/tokenizer/tokenizer.h"
#include "trireme/data/tokenizer/train_bpe.h"
#include "trireme/train/compile.h"

namespace trireme::cli {
namespace {

using Json = nlohmann::ordered_json;

struct TokenizeArguments {
  std::string tokenizer;
  std::string out;
  std::vector<std::string> inputs;
  std::int64_t train = 0;
  std::string format = "raw";
  std::string type = "auto";
  std::string pattern = "gpt2";
  std::vector<std::string> specials;
  std::uint64_t min_frequency = 2;
  std::string field = "text";
  int threads = 0;
  bool lines = false;
  bool add_specials = false;
  bool overwrite = false;
  bool json = false;
};

int threads_of(const TokenizeArguments& a) { return a.threads > 0 ? a.threads : train::compute_threads({}); }

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// "x.bin", or "x.bin (a link to y.bin)": what would be replaced.
std::string with_target(const std::string& out) {
  const std::string target = behind_links(out);
  return target == out ? out : fmt::format("{} (a link to {})", out, target);
}

void check_output(const TokenizeArguments& a) {
  if (a.out.empty()) refuse("say with --out FILE where the result goes");
  if (std::filesystem::exists(a.out) && !a.overwrite)
    refuse("--out {}: there is such a file already; --overwrite replaces it", with_target(a.out));
  if (a.inputs.empty()) refuse("name text files, folders or .jsonl files to read");
}

// The files to read; what is written must not be one of them.
std::vector<data::TextFile> input_files(const TokenizeArguments& a) {
  std::vector<data::TextFile> files = data::find_text_files(a.inputs, "INPUT");
  std::vector<std::string> read = data::tokenizer_files(a.tokenizer);
  for (const data::TextFile& file : files) read.push_back(file.path);
  for (const std::string& path : read)
    if (std::error_code missing; std::filesystem::equivalent(path, a.out, missing))
      refuse("--out {} is read as {}: it would be overwritten; name another file", a.out, path);
  return files;
}

data::TokenType token_type(const TokenizeArguments& a, std::int64_t vocab) {
  constexpr std::int64_t narrow = 65536;
  if (a.type == "uint16" && vocab > narrow)
    refuse("--type uint16 cannot hold the tokenizer's {} tokens; use uint32",
           format_count(static_cast<std::uint64_t>(vocab)));
  if (a.type == "uint32") return data::TokenType::u32;
  return vocab <= narrow ? data::TokenType::u16 : data::TokenType::u32;
}

// --overwrite is for what was made before, not for what else a slip of the fingers names.
bool may_be_replaced(const std::string& out) {
  std::error_code unknown;
  return !std::filesystem::is_regular_file(out, unknown) || std::filesystem::file_size(out, unknown) == 0;
}

void check_tokens(const std::string& out, std::int64_t vocab) {
  if (may_be_replaced(out) || data::is_known_as_tokens(behind_links(out), vocab)) return;
  refuse(
      "--out {}: that is there, and is not known as a token file (llm.c's header, or in a .bin nothing but tokens of "
      "this vocabulary); remove it, or name another file",
      with_target(out));
}

int encode_files(const TokenizeArguments& a) {
  check_output(a);
  const auto tokenizer = data::open_tokenizer(a.tokenizer, "--tokenizer");
  const data::TokenType type = token_type(a, tokenizer->vocab());
  const std::vector<data::TextFile> files = input_files(a);
  check_tokens(a.out, tokenizer->vocab());
  data::TokenWriter writer(a.out, a.format == "llmc" ? data::TokenFormat::llmc : data::TokenFormat::raw, type);
  WorkProgress progress;
  data::EncodeOptions options;
  options.field = a.field;
  options.threads = threads_of(a);
  options.memory = usable_memory();
  options.progress = [&](const data::EncodeProgress& p) { progress.bytes("encoding", p.bytes, p.total_bytes); };
  const data::EncodeProgress totals = data::encode_documents(
      files, *tokenizer, options, [&](std::span<const std::int32_t> tokens) { writer.write(tokens); });
  writer.commit();
  progress.finish();
  const double seconds = progress.seconds();
  const char* type_name = type == data::TokenType::u16 ? "uint16" : "uint32";
  if (a.json) {
    Json o;
    o["out"] = a.out;
    o["format"] = a.format;
    o["type"] = type_name;
    o["vocab"] = tokenizer->vocab();
    o["files"] = files.size();
    o["documents"] = totals.documents;
    if (const auto end = options.end_documents ? tokenizer->end_of_text() : std::nullopt) o["document_end"] = *end;
    o["tokens"] = totals.tokens;
    o["text_bytes"] = totals.total_bytes;
    o["seconds"] = seconds;
    fmt::print("{}\n", dump(o));
    return 0;
  }
  fmt::print("{} · {} from {} of text in {} ({:.2f} bytes a token), {}/s on {} threads\n",
             format_count(totals.documents) + (totals.documents == 1 ? " document" : " documents"),
             format_count(totals.tokens) + " tokens", format_bytes(totals.total_bytes),
             format_count(files.size()) + (files.size() == 1 ? " file" : " files"),
             static_cast<double>(totals.total_bytes) / static_cast<double>(std::max<std::uint64_t>(1, totals.tokens)),
             format_bytes(static_cast<std::uint64_t>(static_cast<double>(totals.total_bytes) / seconds)),
             options.threads);
  fmt::print("wrote {}: {}, {}\n", with_target(a.out), type_name, format_bytes(writer.bytes()));
  // A width that nothing in the file or the vocabulary tells.
  const bool unusual = a.format == "raw" && type != token_type({}, tokenizer->vocab());
  fmt::print("next  trireme train --data.tokens={} --model.vocab={}{}\n", a.out, tokenizer->vocab(),
             unusual ? fmt::format(" --data.token_type={}", type_name) : "");
  if (const auto end = options.end_documents ? tokenizer->end_of_text() : std::nullopt; end && totals.documents > 1)
    fmt::print("      --model.document_end={} keeps attention within a document\n", *end);
  return 0;
}

void check_tokenizer(const std::string& out) {
  if (may_be_replaced(out)) return;
  try {
    data::open_tokenizer(std::filesystem::absolute(out).string());
  } catch (const Error&) {
    refuse("--out {}: that is there, and is no tokenizer; name another file", with_target(out));
  }
}

int train_vocabulary(const TokenizeArguments& a) {
  check_output(a);
  check_tokenizer(a.out);
  const std::vector<data::TextFile> files = input_files(a);
  std::uint64_t bytes = 0;
  for (const data::TextFile& file : files) bytes += file.bytes;
  WorkProgress progress;
  data::TrainBpeOptions options;
  options.vocab = a.train;
  options.min_frequency = a.min_frequency;
  if (!a.specials.empty()) options.specials = a.specials;
  options.pattern = a.pattern;
  options.field = a.field;
  options.threads = threads_of(a);
  options.progress = [&](const char* phase, std::uint64_t done, std::uint64_t total) {
    progress.count(phase, done, total);
  };
  const data::TrainedBpe trained = data::train_bpe(files, options);
  write_file_atomically(a.out, trained.json);
  progress.finish();
  if (a.json) {
    Json o;
    o["out"] = a.out;
    o["vocab"] = trained.vocab;
    o["merges"] = trained.merges;
    o["words"] = trained.words;
    o["files"] = files.size();
    o["text_bytes"] = bytes;
    o["seconds"] = progress.seconds();
    fmt::print("{}\n", dump(o));
    return 0;
  }
  if (trained.vocab < a.train)
    fmt::print(stderr, "note: the text gave {} tokens, not {}: no other pair occurs {} times\n",
               format_count(static_cast<std::uint64_t>(trained.vocab)),
               format_count(static_cast<std::uint64_t>(a.train)), a.min_frequency);
  fmt::print("wrote {}: {} tokens learnt from {} different words of {} in {}\n", with_target(a.out),
             format_count(static_cast<std::uint64_t>(trained.vocab)), format_count(trained.words), format_bytes(bytes),
             format_duration(progress.seconds()));
  fmt::print("next  trireme tokenize --tokenizer {} --out data.bin {}\n", a.out, fmt::join(a.inputs, " "));
  return 0;
}

// For scripts: a JSON string in each line of stdin, an object with its ids and what they decode to in each of stdout.
int encode_lines(const TokenizeArguments& a) {
  const auto tokenizer = data::open_tokenizer(a.tokenizer, "--tokenizer");
  std::string line;
  for (std::int64_t number = 1; std::getline(std::cin, line); ++number) {
    const nlohmann::json text = parse_json(line);
    if (!text.is_string()) refuse("stdin:{}: must be a JSON string", number);
    const std::vector<std::int32_t> ids = tokenizer->encode(
        text.get_ref<const std::string&>(), a.add_specials ? data::Specials::add : data::Specials::none);
    Json o;
    o["ids"] = ids;
    o["text"] = tokenizer->decode(ids, data::Specials::add);
    o["plain"] = tokenizer->decode(ids, data::Specials::none);
    fmt::print("{}\n", dump(o));
  }
  return 0;
}

int tokenize(const TokenizeArguments& a) {
  if (a.train > 0 && !a.tokenizer.empty())
    refuse("--train makes a tokenizer and --tokenizer uses one: give one of them");
  if (a.train > 0) return train_vocabulary(a);
  if (a.tokenizer.empty()) refuse("give --tokenizer tokenizer.json to encode text, or --train N to learn a vocabulary");
  return a.lines ? encode_lines(a) : encode_files(a);
}

}  // namespace

void add_tokenize(CLI::App& app, Context& context) {
  auto a = std::make_shared<TokenizeArguments>();
  CLI::App* command = app.add_subcommand("tokenize", "Text to token files, and new vocabularies from text");
  command->add_option("inputs", a->inputs, "Text files, folders of them, or .jsonl files");
  command->add_option("--tokenizer", a->tokenizer, "A tokenizer.json, a folder that holds one, or \"bytes\"");
  command->add_option("--out", a->out, "The token file, or with --train the tokenizer.json");
  command->add_option("--train", a->train, "Train a byte-level BPE vocabulary of this size instead")
      ->check(CLI::Range(std::int64_t{256}, std::int64_t{1} << 22));
  command->add_option("--format", a->format, "Format of the token file: raw, or llmc with llm.c's header")
      ->check(CLI::IsMember({"raw", "llmc"}));
  command->add_option("--type", a->type, "Type of tokens: uint16 where the vocabulary allows it, else uint32")
      ->check(CLI::IsMember({"auto", "uint16", "uint32"}));
  command->add_option("--field", a->field, "Where JSON lines have the text");
  std::vector<std::string> patterns;
  patterns.reserve(data::kKnownPatterns.size());
  for (const data::KnownPattern& known : data::kKnownPatterns) patterns.emplace_back(known.name);
  command->add_option("--pattern", a->pattern, "With --train, how text is cut into words")
      ->check(CLI::IsMember(patterns));
  command->add_option("--special", a->specials, "With --train, special tokens; <|endoftext|> if none is given");
  command->add_option("--min-frequency", a->min_frequency, "With --train, how often a pair must occur");
  command->add_option("--threads", a->threads, "0: all cores")->check(CLI::Range(0, 4096));
  command->add_flag("--lines", a->lines, "Read JSON strings from stdin, write ids and decoded text as JSON lines");
  command->add_flag("--add-specials", a->add_specials, "With --lines, add what the model expects around a prompt");
  command->add_flag("--overwrite", a->overwrite, "Replace the file --out names");
  command->add_flag("--json", a->json, "Totals as one JSON object");
  command->footer(
      "\nExamples:\n"
      "  trireme tokenize --train 32000 --out tokenizer.json book.txt more/     a new vocabulary from text\n"
      "  trireme tokenize --tokenizer tokenizer.json --out data.bin book.txt    text to tokens, all cores\n"
      "  trireme tokenize --tokenizer gpt2/ --out web.bin --field content web.jsonl\n"
      "  trireme train my.toml --data.tokens=data.bin --model.vocab=32000\n"
      "  echo '\"Hello\"' | trireme tokenize --tokenizer tokenizer.json --lines\n");
  command->callback([&context, a] { context.run = [a] { return tokenize(*a); }; });
}

}  // namespace trireme::cli
