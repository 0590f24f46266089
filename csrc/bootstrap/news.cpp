#include "bootstrap/news.hpp"

#include "common/error.hpp"
#include "common/record.hpp"

namespace mpi_gdr {

std::string serialise(const News& news) {
  std::vector<std::string> fields = {std::to_string(static_cast<int>(news.kind)), news.text,
                                     news.meets_again ? "1" : "0", news.details};
  for (const int rank : news.ranks) fields.push_back(std::to_string(rank));
  return pack(fields);
}

std::optional<News> parse_news(const std::string& text, int size) {
  try {
    RecordReader record("news", text);
    News news;
    news.kind = static_cast<News::Kind>(record.number<int>("kind", 0, static_cast<int>(News::Kind::Slow)));
    news.text = record.text("text");
    news.meets_again = record.flag("whether it meets again");
    news.details = record.text("details");
    do {
      news.ranks.push_back(record.number<int>("rank", 0, size - 1));
    } while (record.more());
    return news;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace mpi_gdr
