#include "bootstrap/news.hpp"

#include <charconv>

#include "bootstrap/rendezvous.hpp"
#include "common/error.hpp"

namespace mpigdr {
namespace {

constexpr std::size_t kFixedFields = 4;  // then the ranks

std::optional<int> number(const std::string& text, int below) {
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, problem] = std::from_chars(text.data(), end, value);
  if (problem != std::errc() || at != end || value < 0 || value >= below) return std::nullopt;
  return value;
}

}  // namespace

std::string serialise(const News& news) {
  std::vector<std::string> fields = {std::to_string(static_cast<int>(news.kind)), news.text,
                                     news.meets_again ? "1" : "0", news.details};
  for (const int rank : news.ranks) fields.push_back(std::to_string(rank));
  return pack(fields);
}

std::optional<News> parse_news(const std::string& text, int size) {
  std::vector<std::string> fields;
  try {
    fields = unpack(text);
  } catch (const Error&) {
    return std::nullopt;
  }
  if (fields.size() <= kFixedFields) return std::nullopt;
  const auto kind = number(fields[0], static_cast<int>(News::Kind::Back) + 1);
  if (!kind) return std::nullopt;
  News news;
  news.kind = static_cast<News::Kind>(*kind);
  news.text = fields[1];
  news.meets_again = fields[2] == "1";
  news.details = fields[3];
  for (std::size_t i = kFixedFields; i < fields.size(); ++i) {
    const auto rank = number(fields[i], size);
    if (!rank) return std::nullopt;
    news.ranks.push_back(*rank);
  }
  return news;
}

}  // namespace mpigdr
