#include "tests/bench/arrivals.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <stdexcept>

namespace paceline::bench {
namespace {

double above_zero(const std::string& text, const std::string& how) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (*end != 0 || !(number > 0) || !std::isfinite(number))
    throw std::invalid_argument("a number above 0 is wanted in --arrivals " + how);
  return number;
}

std::vector<double> poisson(double rate, int count) {
  std::mt19937_64 random(1);
  std::vector<double> times;
  double time = 0;
  for (int i = 0; i < count; ++i) {
    const double uniform = (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53;
    times.push_back(time);
    time -= std::log(uniform) / rate;
  }
  return times;
}

std::vector<double> of_trace(const std::string& path, double speed, int count) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  if (!in || line.rfind("TIMESTAMP,", 0) != 0)
    throw std::invalid_argument(path + ": no trace that begins with TIMESTAMP,");
  std::vector<double> times;
  while (static_cast<int>(times.size()) < count && std::getline(in, line)) {
    int day = 0;
    int hours = 0;
    int minutes = 0;
    double seconds = 0;
    if (std::sscanf(line.c_str(), "%*d-%*d-%d %d:%d:%lf", &day, &hours, &minutes, &seconds) != 4)
      throw std::invalid_argument(path + ": not a time: " + line);
    times.push_back((((day * 24.0 + hours) * 60 + minutes) * 60 + seconds) / speed);
    if (times.size() > 1 && times.back() < times[times.size() - 2])
      throw std::invalid_argument(path + ": times fall at " + line);
  }
  if (static_cast<int>(times.size()) < count)
    throw std::invalid_argument(path + ": has only " + std::to_string(times.size()) +
                                " requests of " + std::to_string(count));
  const double first = times.empty() ? 0 : times.front();
  for (double& time : times) time -= first;
  return times;
}

}  // namespace

std::vector<double> arrivals(const std::string& how, int count) {
  if (how == "once") return std::vector<double>(count);
  const std::size_t colon = how.rfind(':');
  const std::string name = how.substr(0, colon);
  const double number = colon == std::string::npos ? 1 : above_zero(how.substr(colon + 1), how);
  if (name == "poisson" && colon != std::string::npos) return poisson(number, count);
  if (name.ends_with(".csv")) return of_trace(name, number, count);
  throw std::invalid_argument(
      "--arrivals takes once, poisson:RATE, FILE.csv and FILE.csv:SPEED, not " + how);
}

}  // namespace paceline::bench
