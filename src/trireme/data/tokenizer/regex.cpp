#include "trireme/data/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "trireme/core/error.h"
#include "trireme/data/tokenizer/regex_syntax.h"
#include "trireme/data/tokenizer/utf8.h"

namespace trireme::data {
namespace {

constexpr std::size_t kJitStackStart = std::size_t{32} << 10;
constexpr std::size_t kJitStackMax = std::size_t{8} << 20;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct RegexScratch::Impl {
  std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data{pcre2_match_data_create(1, nullptr),
                                                                      pcre2_match_data_free};
  std::unique_ptr<pcre2_match_context, void (*)(pcre2_match_context*)> context{pcre2_match_context_create(nullptr),
                                                                               pcre2_match_context_free};
  std::unique_ptr<pcre2_jit_stack, void (*)(pcre2_jit_stack*)> stack{
      pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr), pcre2_jit_stack_free};
};

RegexScratch::RegexScratch() : impl_(std::make_unique<Impl>()) {
  if (!impl_->data || !impl_->context) fail("out of memory");
  if (impl_->stack) pcre2_jit_stack_assign(impl_->context.get(), nullptr, impl_->stack.get());
}
RegexScratch::~RegexScratch() = default;

struct Regex::Impl {
  std::unique_ptr<pcre2_code, void (*)(pcre2_code*)> code{nullptr, pcre2_code_free};
  bool jit = false;
  std::string where;
};

Regex::Regex(const std::string& pattern, const std::string& where) : impl_(std::make_unique<Impl>()) {
  impl_->where = where;
  const std::string translated = to_pcre2(pattern, where);
  const std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Oniguruma's ^ and $ mean lines.
  impl_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                                  context.get()));
  if (!impl_->code) refuse("{}: the regular expression \"{}\" is not valid: {}", where, pattern, message_of(error));
  impl_->jit = pcre2_jit_compile(impl_->code.get(), PCRE2_JIT_COMPLETE) == 0;
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

std::optional<Regex::Match> Regex::search(std::string_view text, std::size_t from, RegexScratch& scratch) const {
  // An empty view may have no address, which the library refuses.
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.empty() ? "" : text.data());
  RegexScratch::Impl& s = *scratch.impl_;
  const int found = impl_->jit ? pcre2_jit_match(impl_->code.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK,
                                                 s.data.get(), s.context.get())
                               : pcre2_match(impl_->code.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK,
                                             s.data.get(), s.context.get());
  if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (found < 0) fail("{}: matching the regular expression failed: {}", impl_->where, message_of(found));
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(s.data.get());
  // \K in a look-ahead can end a match before its beginning.
  if (ends[0] > ends[1] || ends[0] < from) fail("{}: the regular expression matched backwards", impl_->where);
  return Match{ends[0], ends[1]};
}

std::size_t Regex::behind(std::string_view text, std::size_t at) {
  return at < text.size() ? at + utf8_length(text[at]) : at + 1;
}

}  // namespace trireme::data
