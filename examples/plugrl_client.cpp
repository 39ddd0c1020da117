// A PlugRL env client in one file of C++17, written from SPEC.md alone: POSIX sockets and the standard library.
//
//     g++ -std=c++17 -O2 -Wall -Wextra -o plugrl_client plugrl_client.cpp
//
//     plugrl_client HOST PORT [STEPS]            a toy env, for 20 exchanges; then it says goodbye
//     plugrl_client --probe HOST PORT [N_ENVS]   the probe env of SPEC 8.1, until the server stops
//     plugrl_client --train HOST PORT [N_ENVS]   Gymnasium's Pendulum-v1, until the server stops
//     plugrl_client --vectors DIR                no server: run the test vectors in DIR
//
// It reads from top to bottom:
//     1 errors   2 msgpack out   3 arrays   4 msgpack in   5 SHA-1 and base64   6 socket   7 WebSocket
//     8 messages   9 environments   10 client   11 vectors   12 command line
// To drive a robot with it, write another Env in section 9. `--bug NAME` breaks one rule on purpose.

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Arrays are written as they lie in memory: on a big-endian machine, write the dtypes with '>' instead of '<'."
#endif
#ifndef MSG_NOSIGNAL  // macOS has the socket option SO_NOSIGPIPE in its place
#define MSG_NOSIGNAL 0
#endif

namespace {

using std::size_t;
using std::string;
using std::string_view;

// ------------------------------------------------------------------------------------------------------ 1 errors

// The server broke the protocol: close with `code` and end.
struct Malformed : std::runtime_error {
  explicit Malformed(const string& what_is_wrong, int close_code = 1002)
      : std::runtime_error(what_is_wrong), code(close_code) {}
  int code;
};

// The same, found inside the value that `name` leads to.
Malformed inside(const string& name, const Malformed& error) {
  string what = error.what();
  const bool nested = what.rfind('.', 0) == 0;  // ".shape: ..." already starts with a path
  return Malformed("." + name + (nested ? "" : ": ") + what, error.code);
}

// The connection is over; code 1006 stands for one that broke.
struct Closed {
  int code;
  string reason;
  string text() const { return std::to_string(code) + (reason.empty() ? "" : " ") + reason; }
};

// A text frame came where a binary one was due (SPEC 7.4).
struct TextFrame {
  std::uint64_t length;
};

// Trying again would change nothing.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Usage : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// SIGINT or SIGTERM.
struct Interrupted {};
volatile std::sig_atomic_t interrupted = 0;

// A line for the user; what a server wrote into it may not command the terminal.
void say(string text) {
  for (char& each : text)
    if (static_cast<unsigned char>(each) < 0x20 || each == 0x7F) each = '?';
  std::cerr << "plugrl_client: " + text + "\n" << std::flush;
}

// ------------------------------------------------------------------------------------------ 2 msgpack out (SPEC 3)

constexpr size_t kHeadroom = 14;  // bytes in front of a frame for the longest WebSocket header of a client

// Writes one message into a buffer that is kept between messages, so that in the long run nothing is allocated.
class Writer {
 public:
  void begin() { bytes_.assign(kHeadroom, '\0'); }
  string& buffer() { return bytes_; }
  string_view message() const { return string_view(bytes_).substr(kHeadroom); }

  void nil() { byte(0xC0); }
  void boolean(bool value) { byte(value ? 0xC3 : 0xC2); }
  void map(size_t pairs) { head(pairs, 0x80, 15, {0, 0xDE, 0xDF}); }
  void list(size_t length) { head(length, 0x90, 15, {0, 0xDC, 0xDD}); }

  void text(string_view value) {
    head(value.size(), 0xA0, 31, {0xD9, 0xDA, 0xDB});
    bytes_.append(value);
  }

  void binary(string_view value) {
    binary_head(value.size());
    bytes_.append(value);
  }

  void natural(std::uint64_t value) {
    if (value < 0x80) return byte(value);
    if (value <= 0xFF) return number(0xCC, value, 1);
    if (value <= 0xFFFF) return number(0xCD, value, 2);
    if (value <= 0xFFFFFFFF) return number(0xCE, value, 4);
    number(0xCF, value, 8);
  }

  void integer(std::int64_t value) {
    const auto bits = static_cast<std::uint64_t>(value);
    if (value >= 0) return natural(bits);
    if (value >= -32) return byte(bits & 0xFF);
    if (value >= INT8_MIN) return number(0xD0, bits, 1);
    if (value >= INT16_MIN) return number(0xD1, bits, 2);
    if (value >= INT32_MIN) return number(0xD2, bits, 4);
    number(0xD3, bits, 8);
  }

  void real(double value) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    number(0xCB, bits, 8);
  }

  // The map that stands for an array, in openpi's key order, with `size` bytes left open for its elements. They are to
  // be filled in before anything else is written: that is the one copy a payload takes on its way out.
  char* array(string_view dtype, const std::vector<std::uint64_t>& shape, size_t size) {
    map(4);
    binary("__ndarray__");
    boolean(true);
    binary("data");
    binary_head(size);
    const size_t payload = bytes_.size();
    bytes_.resize(payload + size);
    binary("dtype");
    text(dtype);
    binary("shape");
    list(shape.size());
    for (std::uint64_t length : shape) natural(length);
    return bytes_.data() + payload;
  }

  // The one-dimensional array of some numbers.
  template <class T>
  void column(string_view dtype, const std::vector<T>& values) {
    char* to = array(dtype, {values.size()}, values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(to, values.data(), values.size() * sizeof(T));
  }

 private:
  void byte(std::uint64_t value) { bytes_.push_back(static_cast<char>(value)); }

  void number(int code, std::uint64_t bits, int size) {
    byte(static_cast<std::uint64_t>(code));
    for (int shift = 8 * (size - 1); shift >= 0; shift -= 8) byte((bits >> shift) & 0xFF);
  }

  void binary_head(size_t length) { head(length, 0, -1, {0xC4, 0xC5, 0xC6}); }

  // The header of a sized value: in one byte where it fits, else `codes` with 1, 2 or 4 bytes of length.
  void head(size_t length, int fixed, int most, std::array<int, 3> codes) {
    if (static_cast<std::int64_t>(length) <= most) return byte(static_cast<std::uint64_t>(fixed) | length);
    if (length <= 0xFF && codes[0] != 0) return number(codes[0], length, 1);
    if (length <= 0xFFFF) return number(codes[1], length, 2);
    number(codes[2], length, 4);
  }

  string bytes_;
};

// ------------------------------------------------------------------------------------------- 3 arrays (SPEC 3.2, 3.3)

enum class Kind { nil, boolean, natural, negative, real, text, binary, list, map, array, scalar };

// One decoded value. Texts and payloads are views on the frame, which must live longer.
struct Value {
  Kind kind = Kind::nil;
  bool boolean = false;
  std::uint64_t natural = 0;  // of ints of 0 or more
  std::int64_t negative = 0;  // of ints below 0
  double real = 0;
  string_view bytes;         // text, binary; the elements of an array
  string_view dtype;         // array, scalar
  std::vector<Value> items;  // list; map: key, value, key, value, ...; array: its shape; scalar: its value

  bool is(Kind wanted) const { return kind == wanted; }

  // The value under a str key (or, for the markers, a bin key) of a map; null if there is none.
  const Value* find(string_view key, Kind key_kind = Kind::text) const {
    for (size_t at = items.size(); is(Kind::map) && at >= 2; at -= 2)  // of equal keys the last one counts
      if (items[at - 2].is(key_kind) && items[at - 2].bytes == key) return &items[at - 1];
    return nullptr;
  }
};

constexpr size_t kMaxDimensions = 32;

// Bytes of an element of `dtype`; 0 if it may not travel (SPEC 3.3).
size_t item_size(string_view dtype) {
  if (dtype.size() < 3 || dtype.size() > 10 || dtype[2] == '0') return 0;
  size_t size = 0;
  const char* end = dtype.data() + dtype.size();
  if (std::from_chars(dtype.data() + 2, end, size).ptr != end) return 0;
  const char order = dtype[0], kind = dtype[1];
  if (kind == 'U') return order == '<' || order == '>' ? 4 * size : 0;
  if (order != '<' && order != '>' && (order != '|' || size != 1)) return 0;
  const bool power = size == 1 || size == 2 || size == 4 || size == 8;
  if (kind == 'b') return size == 1 ? 1 : 0;
  if (kind == 'i' || kind == 'u') return power ? size : 0;
  return kind == 'f' && power && size != 1 ? size : 0;
}

bool is_utf32(string_view data, bool little) {
  for (size_t at = 0; at + 4 <= data.size(); at += 4) {
    std::uint32_t point = 0;
    for (size_t i = 0; i < 4; ++i)
      point |= static_cast<std::uint32_t>(static_cast<unsigned char>(data[at + i])) << (little ? 8 * i : 24 - 8 * i);
    if (point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) return false;
  }
  return true;
}

// Bytes that an array of `shape` takes; nothing if that is beyond all reason.
std::optional<std::uint64_t> array_size(size_t item, const std::vector<Value>& shape) {
  std::uint64_t product = item, bytes = item;
  for (const Value& length : shape) {
    if (!length.is(Kind::natural)) throw Malformed(".shape: expected ints of 0 or more");
    const std::uint64_t factor = std::max<std::uint64_t>(length.natural, 1);  // an empty array may not overflow either
    if (product > static_cast<std::uint64_t>(INT64_MAX) / factor) return std::nullopt;
    product *= factor;
    bytes *= length.natural;
  }
  return bytes;
}

// The array that a map with the marker `__ndarray__` stands for, every byte accounted for.
Value to_array(Value map) {
  const Value* marker = map.find("__ndarray__", Kind::binary);
  const Value* data = map.find("data", Kind::binary);
  const Value* dtype = map.find("dtype", Kind::binary);
  const Value* shape = map.find("shape", Kind::binary);
  if (map.items.size() != 8 || !data || !dtype || !shape || !marker->is(Kind::boolean) || !marker->boolean)
    throw Malformed("expected exactly __ndarray__ (true), data, dtype and shape");
  const size_t item = dtype->is(Kind::text) ? item_size(dtype->bytes) : 0;
  if (item == 0) throw Malformed(".dtype: expected b1, i1-i8, u1-u8, f2-f8 or U");
  if (!shape->is(Kind::list) || shape->items.size() > kMaxDimensions)
    throw Malformed(".shape: expected a list of at most " + std::to_string(kMaxDimensions) + " ints");
  if (!data->is(Kind::binary) || array_size(item, shape->items) != data->bytes.size())
    throw Malformed(".data: expected bin of exactly as many bytes as dtype and shape say");
  const char kind = dtype->bytes[1];
  if (kind == 'b' && data->bytes.find_first_not_of(string_view("\0\1", 2)) != string_view::npos)
    throw Malformed(".data: expected bools of 0 or 1");
  if (kind == 'U' && !is_utf32(data->bytes, dtype->bytes[0] == '<')) throw Malformed(".data: not UTF-32");
  Value array;
  array.kind = Kind::array;
  array.bytes = data->bytes;
  array.dtype = dtype->bytes;
  array.items = shape->items;
  return array;
}

bool fits(const Value& value, char kind, size_t size) {
  const int bits = static_cast<int>(8 * size);
  if (kind == 'b') return value.is(Kind::boolean);
  if (kind == 'f') return value.is(Kind::real) || value.is(Kind::natural) || value.is(Kind::negative);
  if (value.is(Kind::natural)) return kind == 'i' ? value.natural >> (bits - 1) == 0 : value.natural >> (bits - 1) <= 1;
  return kind == 'i' && value.is(Kind::negative) && value.negative >> (bits - 1) == -1;
}

// The scalar that a map with the marker `__npgeneric__` stands for.
Value to_scalar(Value map) {
  const Value* marker = map.find("__npgeneric__", Kind::binary);
  const Value* data = map.find("data", Kind::binary);
  const Value* dtype = map.find("dtype", Kind::binary);
  if (map.items.size() != 6 || !data || !dtype || !marker->is(Kind::boolean) || !marker->boolean)
    throw Malformed("expected exactly __npgeneric__ (true), data and dtype");
  const size_t item = dtype->is(Kind::text) ? item_size(dtype->bytes) : 0;
  if (item == 0 || dtype->bytes[1] == 'U') throw Malformed(".dtype: expected b1, i1-i8, u1-u8 or f2-f8");
  if (!fits(*data, dtype->bytes[1], item)) throw Malformed(".data: not a scalar of " + string(dtype->bytes));
  Value scalar;
  scalar.kind = Kind::scalar;
  scalar.dtype = dtype->bytes;
  scalar.items.push_back(*data);
  return scalar;
}

double from_half(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  double value = std::ldexp(exponent == 0 ? fraction : fraction + 1024, std::max(exponent, 1) - 25);
  if (exponent == 31) value = fraction == 0 ? INFINITY : NAN;
  return bits & 0x8000 ? -value : value;
}

template <class T>
double as(const unsigned char* raw) {
  T value;
  std::memcpy(&value, raw, sizeof value);
  return static_cast<double>(value);
}

// Element `index` of the elements `data`, as a double whatever the dtype is (SPEC 5.3: it need not be float32).
double number_at(string_view dtype, string_view data, size_t index) {
  const size_t size = item_size(dtype);
  if (dtype[1] == 'U' || (index + 1) * size > data.size()) throw Malformed("not a number");
  unsigned char raw[8] = {};
  std::memcpy(raw, data.data() + index * size, size);
  if (dtype[0] == '>') std::reverse(raw, raw + size);
  switch (dtype[1]) {
    case 'f':
      if (size == 2) return from_half(static_cast<std::uint16_t>(raw[0] | raw[1] << 8));
      return size == 4 ? as<float>(raw) : as<double>(raw);
    case 'i':
      if (size <= 2) return size == 1 ? as<std::int8_t>(raw) : as<std::int16_t>(raw);
      return size == 4 ? as<std::int32_t>(raw) : as<std::int64_t>(raw);
    default:
      return as<std::uint64_t>(raw);  // the bytes above `size` are 0
  }
}

// ------------------------------------------------------------------------------------------- 4 msgpack in (SPEC 3)

constexpr int kMaxDepth = 16;
constexpr std::uint64_t kMaxElements = 65536;

// Bytes of the UTF-8 character at `at`; 0 if there is none.
size_t utf8_length(string_view text, size_t at) {
  const auto byte = [&](size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0; };
  const int lead = byte(0), next = byte(1);
  if (lead < 0x80) return 1;
  const size_t length = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  if ((lead == 0xE0 && next < 0xA0) || (lead == 0xF0 && next < 0x90)) return 0;    // a longer form than needed
  if ((lead == 0xED && next >= 0xA0) || (lead == 0xF4 && next >= 0x90)) return 0;  // a surrogate; beyond Unicode
  return length;
}

bool is_utf8(string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

// Reads the one value of a frame. Everything is counted and bounds-checked before it is built.
class Reader {
 public:
  explicit Reader(string_view frame) : frame_(frame) {}

  Value read() {
    Value result = value(0);
    if (position_ != frame_.size()) throw Malformed("bytes follow the value");
    return result;
  }

 private:
  string_view take(std::uint64_t count) {
    if (count > frame_.size() - position_) throw Malformed("the frame ends inside a value");
    position_ += count;
    return frame_.substr(position_ - count, count);
  }

  std::uint64_t big_endian(size_t size) {
    std::uint64_t bits = 0;
    for (char each : take(size)) bits = bits << 8 | static_cast<unsigned char>(each);
    return bits;
  }

  Value value(int depth) {
    const auto code = static_cast<unsigned>(big_endian(1));
    if (code < 0x80) return natural(code);
    if (code < 0x90) return map(code & 15, depth + 1);
    if (code < 0xA0) return list(code & 15, depth + 1);
    if (code < 0xC0) return text(code & 31);
    if (code >= 0xE0) return integer(static_cast<std::int8_t>(code));
    return long_value(code, depth);
  }

  // The types 0xc0 to 0xdf, whose size or length stands in the bytes that follow.
  Value long_value(unsigned code, int depth) {
    switch (code) {
      case 0xC0: return {};
      case 0xC2:
      case 0xC3: return boolean(code == 0xC3);
      case 0xC4:
      case 0xC5:
      case 0xC6: return binary(big_endian(size_t{1} << (code - 0xC4)));
      case 0xCA: return real(as<float>(little(4).data()));
      case 0xCB: return real(as<double>(little(8).data()));
      case 0xCC:
      case 0xCD:
      case 0xCE:
      case 0xCF: return natural(big_endian(size_t{1} << (code - 0xCC)));
      case 0xD0: return integer(static_cast<std::int8_t>(big_endian(1)));
      case 0xD1: return integer(static_cast<std::int16_t>(big_endian(2)));
      case 0xD2: return integer(static_cast<std::int32_t>(big_endian(4)));
      case 0xD3: return integer(static_cast<std::int64_t>(big_endian(8)));
      case 0xD9:
      case 0xDA:
      case 0xDB: return text(big_endian(size_t{1} << (code - 0xD9)));
      case 0xDC:
      case 0xDD: return list(big_endian(size_t{2} << (code - 0xDC)), depth + 1);
      case 0xDE:
      case 0xDF: return map(big_endian(size_t{2} << (code - 0xDE)), depth + 1);
      default: throw Malformed("a msgpack type that is not allowed");
    }
  }

  std::array<unsigned char, 8> little(size_t size) {
    std::array<unsigned char, 8> raw{};
    const string_view from = take(size);
    std::copy(from.rbegin(), from.rend(), raw.begin());
    return raw;
  }

  static Value boolean(bool value) {
    Value result;
    result.kind = Kind::boolean;
    result.boolean = value;
    return result;
  }

  static Value natural(std::uint64_t value) {
    Value result;
    result.kind = Kind::natural;
    result.natural = value;
    return result;
  }

  static Value integer(std::int64_t value) {
    if (value >= 0) return natural(static_cast<std::uint64_t>(value));
    Value result;
    result.kind = Kind::negative;
    result.negative = value;
    return result;
  }

  static Value real(double value) {
    Value result;
    result.kind = Kind::real;
    result.real = value;
    return result;
  }

  Value binary(std::uint64_t length) {
    Value result;
    result.kind = Kind::binary;
    result.bytes = take(length);
    return result;
  }

  Value text(std::uint64_t length) {
    Value result;
    result.kind = Kind::text;
    result.bytes = take(length);
    if (!is_utf8(result.bytes)) throw Malformed("a str is not UTF-8");
    return result;
  }

  // Count a container before anything is allocated for it.
  void enter(std::uint64_t elements, int depth) {
    elements_ += elements;
    if (depth > kMaxDepth || elements_ > kMaxElements) throw Malformed("expected at most 16 levels and 65536 elements");
    if (elements > frame_.size() - position_) throw Malformed("the frame ends inside a value");
  }

  Value list(std::uint64_t length, int depth) {
    enter(length, depth);
    Value result;
    result.kind = Kind::list;
    result.items.reserve(length);
    for (std::uint64_t i = 0; i < length; ++i) result.items.push_back(named(std::to_string(i), depth));
    return result;
  }

  Value map(std::uint64_t pairs, int depth) {
    enter(2 * pairs, depth);
    Value result;
    result.kind = Kind::map;
    result.items.reserve(2 * pairs);
    for (std::uint64_t i = 0; i < pairs; ++i) {
      Value key = value(kMaxDepth);
      if (!key.is(Kind::text) && !key.is(Kind::binary)) throw Malformed("expected a map key of str or bin");
      result.items.push_back(key);
      result.items.push_back(named(string(key.bytes), depth));
    }
    if (result.find("__ndarray__", Kind::binary)) return to_array(std::move(result));
    return result.find("__npgeneric__", Kind::binary) ? to_scalar(std::move(result)) : result;
  }

  Value named(const string& name, int depth) {
    try {
      return value(depth);
    } catch (const Malformed& error) {
      throw inside(name, error);
    }
  }

  string_view frame_;
  size_t position_ = 0;
  std::uint64_t elements_ = 0;
};

// --------------------------------------------------------------------------- 5 SHA-1 and base64 (RFC 3174, RFC 4648)

std::uint32_t rotate(std::uint32_t bits, int by) { return bits << by | bits >> (32 - by); }

void sha1_block(const unsigned char* block, std::array<std::uint32_t, 5>& hash) {
  std::array<std::uint32_t, 80> w{};
  for (size_t i = 0; i < 16; ++i)
    for (size_t j = 0; j < 4; ++j) w[i] = w[i] << 8 | block[4 * i + j];
  for (size_t i = 16; i < 80; ++i) w[i] = rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
  auto [a, b, c, d, e] = hash;
  for (size_t i = 0; i < 80; ++i) {
    std::uint32_t mix = b ^ c ^ d, constant = i < 40 ? 0x6ED9EBA1 : 0xCA62C1D6;
    if (i < 20) mix = (b & c) | (~b & d), constant = 0x5A827999;
    if (i >= 40 && i < 60) mix = (b & c) | (b & d) | (c & d), constant = 0x8F1BBCDC;
    const std::uint32_t next = rotate(a, 5) + mix + e + w[i] + constant;
    e = d, d = c, c = rotate(b, 30), b = a, a = next;
  }
  hash[0] += a, hash[1] += b, hash[2] += c, hash[3] += d, hash[4] += e;
}

string sha1(string text) {
  const std::uint64_t bits = 8 * static_cast<std::uint64_t>(text.size());
  text.push_back('\x80');
  while (text.size() % 64 != 56) text.push_back('\0');
  for (int shift = 56; shift >= 0; shift -= 8) text.push_back(static_cast<char>(bits >> shift & 0xFF));
  std::array<std::uint32_t, 5> hash{0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0};
  for (size_t at = 0; at < text.size(); at += 64)
    sha1_block(reinterpret_cast<const unsigned char*>(text.data()) + at, hash);
  string digest;
  for (std::uint32_t word : hash)
    for (int shift = 24; shift >= 0; shift -= 8) digest.push_back(static_cast<char>(word >> shift & 0xFF));
  return digest;
}

string base64(string_view raw) {
  static const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  string text;
  for (size_t at = 0; at < raw.size(); at += 3) {
    std::uint32_t group = 0;
    for (size_t i = 0; i < 3; ++i)
      group = group << 8 | (at + i < raw.size() ? static_cast<unsigned char>(raw[at + i]) : 0u);
    for (size_t i = 0; i < 4; ++i) text.push_back(at + i <= raw.size() ? digits[group >> (18 - 6 * i) & 63] : '=');
  }
  return text;
}

// ------------------------------------------------------------------------------------------------------ 6 socket

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;
constexpr Time kNever = Time::max();

Time after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// Wait until `fd` is ready for `events`, or only for the time if it is -1. False: the time is up.
bool wait_for(int fd, short events, Time until) {
  for (;;) {
    if (interrupted) throw Interrupted{};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0 && fd < 0) return false;
    pollfd poller{fd, events, 0};
    // In slices, for a signal may come just before the call.
    const int ready = ::poll(&poller, 1, static_cast<int>(std::clamp<long long>(left, 0, 200)));
    if (ready > 0) return true;
    if (ready == 0 && left <= 0) return false;
    if (ready < 0 && errno != EINTR) throw Closed{1006, std::strerror(errno)};
  }
}

// A TCP connection that is never blocked on for longer than one wants.
class Socket {
 public:
  Socket(const string& host, const string& port, Time until) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;  // of IPv4 or IPv6
    if (const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found))
      throw Closed{1006, "cannot find " + host + ": " + ::gai_strerror(error)};
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, ::freeaddrinfo);
    int error = 0;
    for (const addrinfo* each = found; each; each = each->ai_next) {
      error = connect(*each, until);
      if (error == 0) return;
      shut();
    }
    throw Closed{1006, "cannot connect to " + host + " port " + port + ": " + std::strerror(error)};
  }

  ~Socket() { shut(); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  void shut() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

  bool readable(Time until) { return wait_for(fd_, POLLIN, until); }

  // What is there, at most `room` bytes; 0 at the end, or if the connection broke.
  size_t read(char* to, size_t room) {
    for (;;) {
      const ssize_t got = ::recv(fd_, to, room, 0);
      if (got >= 0) return static_cast<size_t>(got);
      if (errno == EAGAIN || errno == EWOULDBLOCK) wait_for(fd_, POLLIN, kNever);
      else if (errno != EINTR) return 0;
    }
  }

  // All of `data`; false if the connection broke, or took nothing until then.
  bool write(string_view data, Time until) {
    while (!data.empty()) {
      const ssize_t sent = ::send(fd_, data.data(), data.size(), MSG_NOSIGNAL);
      if (sent >= 0) data.remove_prefix(static_cast<size_t>(sent));
      else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        if (!wait_for(fd_, POLLOUT, until)) return false;
      } else if (errno != EINTR) return false;
    }
    return true;
  }

 private:
  // 0, or what went wrong.
  int connect(const addrinfo& address, Time until) {
    fd_ = ::socket(address.ai_family, address.ai_socktype, address.ai_protocol);
    if (fd_ < 0) return errno;
    if (::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) | O_NONBLOCK) < 0) return errno;
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
#ifdef SO_NOSIGPIPE
    ::setsockopt(fd_, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
    if (::connect(fd_, address.ai_addr, address.ai_addrlen) == 0) return 0;
    if (errno != EINPROGRESS) return errno;
    if (!wait_for(fd_, POLLOUT, until)) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof error;
    return ::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
  }

  int fd_ = -1;
};

// --------------------------------------------------------------------------------- 7 WebSocket (SPEC 1 and RFC 6455)

struct Waits {  // in seconds
  double connect = 30;  // for connecting, the upgrade and the metadata together
  double ping = 20, give_up = 60;  // SPEC 7.7
  double close = 2;  // for the other end of the closing handshake
};

enum Opcode { kContinuation = 0, kText = 1, kBinary = 2, kClose = 8, kPing = 9, kPong = 10 };

bool same_word(string_view a, string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

string_view trimmed(string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  return first == string_view::npos ? "" : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// Whether a close frame may carry the code (RFC 6455 7.4).
bool is_close_code(int code) {
  if (code >= 3000 && code < 5000) return true;
  return code >= 1000 && code <= 1014 && code != 1004 && code != 1005 && code != 1006;
}

class WebSocket {
 public:
  struct Options {
    string host, port, api_key;
    bool compress = false;
    std::uint64_t most = 256u << 20;  // bytes of a message (SPEC 1.1)
    Waits waits{};
  };

  explicit WebSocket(const Options& options)
      : options_(options), deadline_(after(options.waits.connect)), socket_(options.host, options.port, deadline_) {
    upgrade();
    open_ = true;
    heard();
  }

  // From here on the server may take its time, as long as it answers pings.
  void greeted() { deadline_ = kNever; }

  // Send the message behind the headroom of `frame`. It is masked in place.
  void send(string& frame) {
    if (!send_frame(kBinary, frame)) lost();
  }

  // The next message.
  string receive() {
    string message;
    bool begun = false;
    for (;;) {
      const Head head = read_head();
      if (head.opcode >= kClose) {
        control(head);
        continue;
      }
      if (head.opcode == kText) throw TextFrame{head.length};
      if ((head.opcode == kContinuation) != begun) throw Malformed("a WebSocket message inside another");
      if (head.length > options_.most - message.size()) throw Malformed("a frame over the size cap", 1009);
      append(message, head.length);
      begun = true;
      if (head.fin) return message;
    }
  }

  // Read the text that TextFrame told of, which only a client with a bug does.
  void skip(std::uint64_t length) {
    string ignored;
    append(ignored, std::min(length, options_.most));
  }

  // Say goodbye, and wait a moment for the answer.
  void close(int code, string_view reason = "") {
    if (!open_) return;
    open_ = false;
    while (reason.size() > 123 || !is_utf8(reason)) reason.remove_suffix(1);
    string frame(kHeadroom, '\0');
    frame += {static_cast<char>(code >> 8), static_cast<char>(code & 0xFF)};
    frame += reason;
    if (send_frame(kClose, frame)) drain();
    socket_.shut();
  }

 private:
  struct Head {
    bool fin;
    int opcode;
    std::uint64_t length;
  };

  // The handshake of RFC 6455 4.1. No extension is offered (SPEC 1.1).
  void upgrade() {
    string nonce;
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t bits = random_();
      nonce.append(reinterpret_cast<const char*>(&bits), sizeof bits);
    }
    const string key = base64(nonce);
    const string host = options_.host.find(':') == string::npos ? options_.host : "[" + options_.host + "]";
    string request = "GET / HTTP/1.1\r\nHost: " + host + ":" + options_.port +
                     "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: " + key +
                     "\r\nSec-WebSocket-Version: 13\r\n";
    if (options_.compress) request += "Sec-WebSocket-Extensions: permessage-deflate\r\n";
    if (!options_.api_key.empty()) request += "Authorization: Api-Key " + options_.api_key + "\r\n";
    if (!socket_.write(request + "\r\n", deadline_)) throw Closed{1006, "the connection broke"};
    check_response(read_response(), base64(sha1(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")));
  }

  string read_response() {
    size_t end = string::npos;
    while ((end = input_.find("\r\n\r\n")) == string::npos) {
      if (input_.size() > 16384) throw Closed{1006, "no upgrade: an HTTP header over 16 KiB"};
      fill();
    }
    string response = input_.substr(0, end + 2);
    input_.erase(0, end + 4);
    return response;
  }

  void check_response(const string& response, const string& accept) {
    const string status = response.substr(0, response.find("\r\n"));
    if (status.rfind("HTTP/1.1 401", 0) == 0) throw Refused("HTTP 401: the server wants an API key (PLUGRL_API_KEY)");
    if (status.rfind("HTTP/1.1 101", 0) != 0) throw Closed{1006, "no upgrade: " + status};
    bool upgraded = false, connected = false, accepted = false;
    std::istringstream lines(response.substr(status.size() + 2));
    for (string line; std::getline(lines, line);) {
      if (!line.empty() && line.back() == '\r') line.pop_back();
      const size_t colon = std::min(line.find(':'), line.size());
      const string_view name = string_view(line).substr(0, colon);
      const string_view value = trimmed(string_view(line).substr(std::min(colon + 1, line.size())));
      if (same_word(name, "Upgrade")) upgraded = same_word(value, "websocket");
      if (same_word(name, "Connection")) connected = connected || has_token(value, "upgrade");
      if (same_word(name, "Sec-WebSocket-Accept")) accepted = value == accept;
      if (same_word(name, "Sec-WebSocket-Extensions") || same_word(name, "Sec-WebSocket-Protocol"))
        throw Closed{1006, "no upgrade: the server took up something that was not offered: " + line};
    }
    if (!upgraded || !connected || !accepted) throw Closed{1006, "no upgrade: not a WebSocket server"};
  }

  static bool has_token(string_view list, string_view token) {
    while (!list.empty()) {
      const size_t comma = std::min(list.find(','), list.size());
      if (same_word(trimmed(list.substr(0, comma)), token)) return true;
      list.remove_prefix(std::min(comma + 1, list.size()));
    }
    return false;
  }

  // Header and mask go into the headroom, right in front of the payload. False: it could not be sent.
  bool send_frame(Opcode opcode, string& frame) {
    const size_t length = frame.size() - kHeadroom;
    const size_t extended = length < 126 ? 0 : length <= 0xFFFF ? 2 : 8;
    const size_t start = kHeadroom - 6 - extended;
    frame[start] = static_cast<char>(0x80 | opcode);
    frame[start + 1] = static_cast<char>(0x80 | (extended == 0 ? length : extended == 2 ? 126 : 127));
    for (size_t i = 0; i < extended; ++i)
      frame[start + 2 + i] = static_cast<char>(length >> 8 * (extended - 1 - i) & 0xFF);
    const std::uint32_t mask = random_();
    std::memcpy(&frame[kHeadroom - 4], &mask, sizeof mask);
    apply_mask(frame.data() + kHeadroom, length, mask);
    return socket_.write(string_view(frame).substr(start), after(options_.waits.give_up));
  }

  static void apply_mask(char* data, size_t length, std::uint32_t mask) {
    const std::uint64_t wide = static_cast<std::uint64_t>(mask) << 32 | mask;
    size_t at = 0;
    for (; at + 8 <= length; at += 8) {
      std::uint64_t bits;
      std::memcpy(&bits, data + at, sizeof bits);
      bits ^= wide;
      std::memcpy(data + at, &bits, sizeof bits);
    }
    for (; at < length; ++at) data[at] = static_cast<char>(data[at] ^ (mask >> 8 * (at % 4) & 0xFF));
  }

  Head read_head() {
    const string first = take(2);
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(first[i]); };
    Head head{(byte(0) & 0x80) != 0, byte(0) & 15, byte(1) & 0x7Fu};
    if (byte(0) & 0x70 || byte(1) & 0x80) throw Malformed("a WebSocket frame with reserved bits, or masked");
    const bool control = head.opcode >= kClose;
    if (head.opcode > kPong || (head.opcode > kBinary && !control)) throw Malformed("an unknown WebSocket opcode");
    if (control && (!head.fin || head.length > 125)) throw Malformed("a control frame in parts, or over 125 bytes");
    if (head.length >= 126) {
      const string extended = take(head.length == 126 ? 2 : 8);
      head.length = 0;
      for (char each : extended) head.length = head.length << 8 | static_cast<unsigned char>(each);
      if (head.length >> 63) throw Malformed("a WebSocket frame of more than 2^63 bytes");
    }
    return head;
  }

  void control(const Head& head) {
    string frame = string(kHeadroom, '\0') + take(head.length);
    if (head.opcode == kPing && open_ && !send_frame(kPong, frame)) lost();
    if (head.opcode == kClose) closed(std::move(frame));
  }

  // The server's close frame has come: answer it, and throw it.
  [[noreturn]] void closed(string frame) {
    const string payload = frame.substr(kHeadroom);
    Closed close{1005, ""};  // RFC 6455: no code
    if (!payload.empty()) {
      const auto byte = [&](size_t i) { return static_cast<unsigned char>(payload[i]); };
      close.code = payload.size() < 2 ? 0 : byte(0) << 8 | byte(1);
      if (!is_close_code(close.code)) throw Malformed("a close frame without a proper code");
      close.reason = payload.substr(2);
      if (!is_utf8(close.reason)) throw Malformed("a close reason that is not UTF-8", 1007);
    }
    open_ = false;
    if (send_frame(kClose, frame)) drain();
    socket_.shut();
    throw close;
  }

  // Sending failed: the server's close frame may still be waiting to be read.
  [[noreturn]] void lost() {
    open_ = false;
    deadline_ = std::min(deadline_, after(options_.waits.close));
    try {
      for (;;) receive();
    } catch (const Closed& close) {
      socket_.shut();
      if (close.code == 1006) throw Closed{1006, "the connection broke"};
      throw;
    }
  }

  // Read to the end, for a moment.
  void drain() {
    std::array<char, 4096> ignored;
    const Time until = after(options_.waits.close);
    while (Clock::now() < until && socket_.readable(until) && socket_.read(ignored.data(), ignored.size()) > 0) {
    }
  }

  string take(size_t count) {
    while (input_.size() < count) fill();
    string taken = input_.substr(0, count);
    input_.erase(0, count);
    return taken;
  }

  // Move `count` bytes of payload to the end of `to`. Memory grows as they come, not as their header promises.
  void append(string& to, std::uint64_t count) {
    const size_t ready = static_cast<size_t>(std::min<std::uint64_t>(count, input_.size()));
    to.append(input_, 0, ready);
    input_.erase(0, ready);
    for (count -= ready; count > 0;) {
      const size_t before = to.size(), room = static_cast<size_t>(std::min<std::uint64_t>(count, 1 << 20));
      to.resize(before + room);
      const size_t got = read_some(to.data() + before, room);
      to.resize(before + got);
      count -= got;
    }
  }

  void fill() {
    std::array<char, 16384> chunk;
    input_.append(chunk.data(), read_some(chunk.data(), chunk.size()));
  }

  // Wait for bytes and read them; keeps the pings going (SPEC 7.7).
  size_t read_some(char* to, size_t room) {
    while (!socket_.readable(std::min({deadline_, ping_due_, give_up_due_}))) {
      const Time now = Clock::now();
      if (now >= deadline_) throw Closed{1006, "no metadata in time"};
      if (now >= give_up_due_) throw Closed{1006, "the server answers no pings"};
      if (now >= ping_due_) ping();
    }
    const size_t got = socket_.read(to, room);
    if (got == 0) throw Closed{1006, "the connection broke"};
    heard();
    return got;
  }

  void heard() {
    ping_due_ = open_ ? after(options_.waits.ping) : kNever;
    give_up_due_ = kNever;
  }

  void ping() {
    string frame(kHeadroom, '\0');
    ping_due_ = after(options_.waits.ping);
    if (give_up_due_ == kNever) give_up_due_ = after(options_.waits.give_up);
    send_frame(kPing, frame);  // if it fails, the next read tells
  }

  Options options_;
  Time deadline_, ping_due_ = kNever, give_up_due_ = kNever;
  bool open_ = false;  // a close frame may still be sent
  string input_;
  std::random_device random_;
  Socket socket_;
};

// ------------------------------------------------------------------------------------- 8 messages (SPEC 2 and 5)

Value decode(string_view frame) {
  try {
    return Reader(frame).read();
  } catch (const Malformed& error) {
    throw Malformed(error.what()[0] == '.' ? "message" + string(error.what()) : error.what());
  }
}

bool has_text_keys(const Value& map) {
  for (size_t at = 0; at < map.items.size(); at += 2)
    if (!map.items[at].is(Kind::text)) return false;
  return map.is(Kind::map);
}

// The `data` of a message, which must be a `kind`.
const Value& message_data(const Value& message, string_view kind) {
  const Value* type = message.find("message_type");
  if (!type || !type->is(Kind::text) || type->bytes != kind)
    throw Malformed("expected a map with message_type " + string(kind));
  const Value* data = message.find("data");
  if (!data || !has_text_keys(*data)) throw Malformed(string(kind) + ".data: expected a map with str keys");
  return *data;
}

struct Metadata {
  std::vector<string> features;
  std::uint64_t version = 1;
  bool offers(string_view feature) const {
    return std::find(features.begin(), features.end(), feature) != features.end();
  }
};

// What the server says about itself. No key is required (SPEC 5.1).
Metadata read_metadata(const Value& message) {
  const Value& data = message_data(message, "metadata");
  Metadata metadata;
  for (const char* key : {"protocol_version", "action_horizon"})
    if (const Value* count = data.find(key); count && count->natural < 1)
      throw Malformed("metadata.data." + string(key) + ": expected an int of 1 or more");
  if (const Value* version = data.find("protocol_version")) metadata.version = version->natural;
  if (const Value* features = data.find("features")) {
    for (const Value& feature : features->items) {
      if (!feature.is(Kind::text)) throw Malformed("metadata.data.features: expected a list of str");
      metadata.features.emplace_back(feature.bytes);
    }
    if (!features->is(Kind::list)) throw Malformed("metadata.data.features: expected a list of str");
  }
  return metadata;
}

struct Action {
  const Value* array = nullptr;  // [H,n,...], a view on the message
  const Value* env_ids = nullptr;  // may be missing
  size_t steps() const { return static_cast<size_t>(array->items[0].natural); }
  size_t envs() const { return static_cast<size_t>(array->items[1].natural); }
};

// An action (SPEC 5.3).
Action read_action(const Value& message) {
  const Value& data = message_data(message, "action");
  const Action action{data.find("action"), data.find("env_ids")};
  const bool numbers = action.array && action.array->is(Kind::array) && action.array->dtype[1] != 'U';
  if (!numbers || action.array->items.size() < 2 || action.steps() < 1)
    throw Malformed("action.data.action: expected numbers[H,n,...] with H >= 1");
  if (!action.env_ids) return action;
  const Value& ids = *action.env_ids;
  if (!ids.is(Kind::array) || (ids.dtype[1] != 'i' && ids.dtype[1] != 'u') || ids.items.size() != 1 ||
      ids.items[0].natural != action.envs())
    throw Malformed("action.data.env_ids: expected int[" + std::to_string(action.envs()) + "]");
  return action;
}

// ------------------------------------------------------------------------------------------------ 9 environments

struct State {
  const char* name;
  std::vector<double> values;
};

struct Outcome {
  double reward = 0;
  bool terminated = false, truncated = false;
  bool done() const { return terminated || truncated; }
};

class Env {
 public:
  virtual ~Env() = default;
  virtual void reset() = 0;
  virtual Outcome step(const std::vector<double>& action) = 0;
  virtual const std::vector<State>& states() const = 0;  // the same names and widths at all times, and in all envs
  virtual const char* text() const = 0;
  virtual bool success() const = 0;  // whether the episode went well
  virtual void declare(Writer&) const {}  // the action space of SPEC 10.2
  virtual const char* id() const { return nullptr; }  // null: nothing is declared
  virtual int max_episode_steps() const { return 0; }
};

// The probe environment (SPEC 8.1): env i's episode lasts 3 + 2 * (i mod 3) steps.
class ProbeEnv : public Env {
 public:
  explicit ProbeEnv(int index) : length_(3 + 2 * (index % 3)) {}
  void reset() override { states_[0].values[0] = 0; }

  Outcome step(const std::vector<double>& action) override {
    const double time = ++states_[0].values[0];
    states_[1].values = action;
    return {1, time >= length_, false};
  }

  const std::vector<State>& states() const override { return states_; }
  const char* text() const override { return "probe"; }
  bool success() const override { return true; }

 private:
  int length_;
  std::vector<State> states_{{"t", {0}}, {"a", {0}}};  // the width of `a` is known once an action has come
};

// A toy for watch mode: keep a drifting cart near 0 by pushing it with the first number of the action.
class CartEnv : public Env {
 public:
  explicit CartEnv(int index) : start_(0.1 * (index % 5) - 0.2), limit_(25 + 5 * (index % 3)) { reset(); }

  void reset() override {
    position_ = start_, speed_ = 0, time_ = 0;
    observe();
  }

  Outcome step(const std::vector<double>& action) override {
    ++time_;
    speed_ += 0.1 * (action.empty() ? 0 : std::clamp(action[0], -1.0, 1.0));
    position_ += 0.1 * speed_;
    observe();
    const bool fell = !success();
    return {-position_ * position_, fell, !fell && time_ >= limit_};
  }

  const std::vector<State>& states() const override { return states_; }
  const char* text() const override { return "hold the cart"; }
  bool success() const override { return std::abs(position_) <= 1; }

 private:
  void observe() { states_[0].values = {position_, speed_, static_cast<double>(time_) / limit_}; }

  double start_, position_ = 0, speed_ = 0;
  int limit_, time_ = 0;
  std::vector<State> states_{{"obs", {0, 0, 0}}};
};

// Gymnasium's Pendulum-v1: the same dynamics, reward, start and limit of 200 steps. Mass and length are 1.
class PendulumEnv : public Env {
 public:
  explicit PendulumEnv(std::uint64_t seed) : random_(seed) { reset(); }

  void reset() override {
    const double angle = uniform(kPi);
    start(angle, uniform(1));
  }

  void start(double angle, double speed) {  // an angle of 0 is upright
    angle_ = angle, speed_ = speed, time_ = 0;
    observe();
  }

  Outcome step(const std::vector<double>& action) override {
    const double torque = std::clamp(action.at(0), -kMaxTorque, kMaxTorque);
    const double upright = angle_ - 2 * kPi * std::floor((angle_ + kPi) / (2 * kPi));
    const double cost = upright * upright + 0.1 * speed_ * speed_ + 0.001 * torque * torque;
    speed_ += (3 * kGravity / 2 * std::sin(angle_) + 3 * torque) * kTimeStep;
    speed_ = std::clamp(speed_, -kMaxSpeed, kMaxSpeed);
    angle_ += speed_ * kTimeStep;
    observe();
    return {-cost, false, ++time_ >= kLimit};
  }

  void declare(Writer& out) const override {
    out.map(5);
    out.text("kind"), out.text("box");
    out.text("shape"), out.list(1), out.natural(1);
    out.text("dtype"), out.text("<f4");
    out.text("low"), out.column<float>("<f4", {-static_cast<float>(kMaxTorque)});
    out.text("high"), out.column<float>("<f4", {static_cast<float>(kMaxTorque)});
  }

  const std::vector<State>& states() const override { return states_; }
  const char* text() const override { return "swing up"; }
  bool success() const override { return std::cos(angle_) > 0.95; }
  const char* id() const override { return "Pendulum-v1"; }
  int max_episode_steps() const override { return kLimit; }

 private:
  static constexpr double kPi = 3.14159265358979323846, kMaxSpeed = 8, kTimeStep = 0.05, kGravity = 10, kMaxTorque = 2;
  static constexpr int kLimit = 200;

  double uniform(double bound) { return bound * (static_cast<double>(random_() >> 11) / (1ull << 52) - 1); }
  void observe() { states_[0].values = {std::cos(angle_), std::sin(angle_), speed_}; }

  std::mt19937_64 random_;
  double angle_ = 0, speed_ = 0;
  int time_ = 0;
  std::vector<State> states_{{"obs", {0, 0, 0}}};
};

// ---------------------------------------------------------------------------------------------- 10 client (SPEC 4, 7)

constexpr const char* kReuse = "reuse-feedback-obs";
constexpr const char* kDeclare = "declare-spaces";

const std::vector<std::pair<const char*, const char*>> kBugs = {
    {"early-infer", "5.1: sends an infer without waiting for the metadata"},
    {"compress", "1.1: offers permessage-deflate"},
    {"frame-cap", "1.1: takes no frame over 1 MiB"},
    {"float32", "5.3: takes every action for float32, whatever its dtype says"},
    {"env-major", "5.3: reads the action [n,H,...] (seen with 2 envs or more)"},
    {"last-step-reward", "5.4: reports the last step's reward, not the sum"},
    {"reset-in-step", "5.4: resets inside the step, so a done row shows the next episode"},
    {"resend-feedback", "7.6: sends the feedback of the old connection on the new one"},
    {"ignore-stop", "7.1: reconnects after the server's stop"},
    {"ignore-text", "7.4: goes on after a text frame"},
    {"stale-chunk", "7.6: goes on with the old connection's chunks (seen with 2 envs or more)"},
    {"reuse-unoffered", "10.1: uses reuse-feedback-obs unasked"},
    {"reuse-after-reset", "10.1: reuses the final observation after a reset"},
};

enum class Mode { watch, probe, train, vectors };

struct Options {
  Mode mode = Mode::watch;
  string host, port, vectors, bug, api_key;
  std::uint64_t steps = 0;  // exchanges; 0: without end
  int envs = 1;
  bool reuse = true;
  std::uint64_t seed = 0;
  std::int64_t offset = 0;  // of this client among those that a server started
  int max_reconnects = 20;
  Waits waits{};
};

// One env, the chunk it runs, and what its next feedback will say.
struct Slot {
  std::int64_t index = 0;
  std::unique_ptr<Env> env;
  std::deque<std::vector<double>> chunk{};
  Outcome outcome{};
  double reward = 0;           // summed over the chunk (SPEC 5.4)
  std::int64_t step_id = 0;    // chunks completed in this episode on this connection (SPEC 5.2)
  bool reusable = false;       // whether the server holds this env's observation (SPEC 10.1)
  bool whole = true;           // whether the episode has lived on one connection only
  double episode_return = 0;
  std::int64_t episode_length = 0;

  bool finished() const { return outcome.done() || chunk.empty(); }

  void step(const string& bug) {
    outcome = env->step(chunk.front());
    chunk.pop_front();
    reward = outcome.reward + (bug == "last-step-reward" ? 0 : reward);
    episode_return += outcome.reward;
    ++episode_length;
    if (outcome.done() && bug == "reset-in-step") env->reset();
  }

  // The feedback has been sent: the chunk is over, and so may be the episode.
  void reported(const string& bug) {
    ++step_id;
    reusable = !outcome.done() || bug == "reuse-after-reset";
    clear();
  }

  // A new connection: whatever was under way is dropped, and the server knows nothing (SPEC 7.6).
  void reconnected(const string& bug) {
    step_id = 0, reusable = false;
    if (bug == "stale-chunk" && !finished()) return;
    whole = whole && episode_length == 0;
    clear();
  }

  void clear() {
    chunk.clear();
    reward = 0;
    if (outcome.done()) {
      env->reset();
      step_id = 0, episode_return = 0, episode_length = 0, whole = true;
    }
    outcome = Outcome{};
  }
};

using Slots = std::vector<Slot*>;

class Client {
 public:
  Client(const Options& options, std::vector<Slot> slots) : options_(options), slots_(std::move(slots)) {}

  // Run over as many connections as it takes; the exit status.
  int run() {
    for (;;) {
      try {
        open();
        while (options_.steps == 0 || exchanges_ < options_.steps) exchange();
        return leave(1000, std::to_string(exchanges_) + " exchanges, done", 0);
      } catch (const Closed& closed) {
        socket_.reset();
        if (const std::optional<int> status = react(closed)) return *status;
      } catch (const TextFrame&) {
        return leave(1003, "the server sent a text frame", 1);
      } catch (const Malformed& error) {
        return leave(error.code, "the server broke the protocol: " + string(error.what()), 1);
      } catch (const Refused& error) {
        return leave(1000, error.what(), 1);
      }
    }
  }

  int leave(int code, const string& why, int status) {
    say(why);
    if (socket_) socket_->close(code, code == 1000 ? "" : why);
    return status;
  }

 private:
  bool bug(const char* name) const { return options_.bug == name; }

  // What to do after a close (SPEC 7.7): the exit status, or nothing after waiting to reconnect.
  std::optional<int> react(const Closed& closed) {
    if (closed.code == 1001 && closed.reason == "plugrl-server-stop" && !bug("ignore-stop")) {
      say("the server has ended the run; " + std::to_string(exchanges_) + " exchanges");
      return 0;
    }
    if (closed.code == 1003 || closed.code == 1008 || closed.code == 1009) {
      say("the server refuses this client: " + closed.text());
      return 1;
    }
    if (attempts_ >= options_.max_reconnects) {
      say(closed.text() + "; giving up after " + std::to_string(attempts_) + " attempts to reconnect");
      return 1;
    }
    const double jitter = 0.5 + 0.5 * random_() / static_cast<double>(std::random_device::max());
    const double pause = std::min(5.0, 0.1 * std::ldexp(1, std::min(attempts_, 10))) * jitter;
    ++attempts_;
    say(closed.text() + "; attempt " + std::to_string(attempts_) + " of " + std::to_string(options_.max_reconnects) +
        " in " + std::to_string(static_cast<int>(1000 * pause)) + " ms");
    wait_for(-1, 0, after(pause));
    return std::nullopt;
  }

  // Connect, and read the metadata.
  void open() {
    for (Slot& slot : slots_) slot.reconnected(options_.bug);
    reuse_ = declare_ = unconfirmed_ = false;
    WebSocket::Options options{options_.host, options_.port, options_.api_key};
    options.compress = bug("compress");
    options.waits = options_.waits;
    if (bug("frame-cap")) options.most = 1 << 20;
    socket_ = std::make_unique<WebSocket>(options);
    asked_early_ = bug("early-infer");
    if (asked_early_) send_infer(asked());
    const string frame = socket_->receive();
    const Metadata metadata = read_metadata(decode(frame));
    socket_->greeted();
    if (metadata.version > 1)
      say("the server speaks version " + std::to_string(metadata.version) + " of the protocol, this client version 1");
    reuse_ = (metadata.offers(kReuse) && options_.reuse) || bug("reuse-unoffered");
    declare_ = metadata.offers(kDeclare) && slots_[0].env->id();
    if (bug("resend-feedback") && !held_.empty()) {
      string frame_again = held_;
      socket_->send(frame_again);
    }
  }

  // One infer, its action, and the feedback of the envs whose chunk ends first.
  void exchange() {
    const Slots asking = asked();
    if (!asked_early_) send_infer(asking);
    asked_early_ = declare_ = false;
    const string frame = answer(asking);
    if (unconfirmed_) attempts_ = 0;
    take_action(frame, asking);
    Slots finished;
    while (finished.empty())
      for (Slot& slot : slots_) {
        slot.step(options_.bug);
        if (slot.finished()) finished.push_back(&slot);
      }
    send_feedback(finished);
    for (Slot* slot : finished) slot->reported(options_.bug);
    unconfirmed_ = true;
    ++exchanges_;
  }

  Slots asked() {
    Slots asking;
    for (Slot& slot : slots_)
      if (slot.chunk.empty()) asking.push_back(&slot);
    return asking;
  }

  string answer(const Slots& asking) {
    for (;;) {
      try {
        return socket_->receive();
      } catch (const TextFrame& text) {
        if (!bug("ignore-text")) throw;
        socket_->skip(text.length);
        send_infer(asking);
      }
    }
  }

  // Hand out the rows of an action, which is time-major (SPEC 5.3).
  void take_action(const string& frame, const Slots& asking) {
    const Value message = decode(frame);
    const Action action = read_action(message);
    if (action.envs() != asking.size())
      throw Malformed("action.data.action: expected " + std::to_string(asking.size()) + " envs on axis 1");
    for (size_t row = 0; action.env_ids && row < asking.size(); ++row)
      if (number_at(action.env_ids->dtype, action.env_ids->bytes, row) != static_cast<double>(asking[row]->index))
        throw Malformed("action.data.env_ids: expected the infer's env_indices");
    for (size_t row = 0; row < asking.size(); ++row)
      for (size_t step = 0; step < action.steps(); ++step)
        asking[row]->chunk.push_back(action_row(action, step, row));
  }

  std::vector<double> action_row(const Action& action, size_t step, size_t row) const {
    const Value& array = *action.array;
    size_t width = 1;
    for (size_t axis = 2; axis < array.items.size(); ++axis) width *= static_cast<size_t>(array.items[axis].natural);
    const size_t place = bug("env-major") ? row * action.steps() + step : step * action.envs() + row;
    std::vector<double> values(width);
    for (size_t i = 0; i < width; ++i) {
      values[i] = number_at(bug("float32") ? "<f4" : array.dtype, array.bytes, place * width + i);
      if (!std::isfinite(values[i]) && !bug("float32")) throw Malformed("action.data.action: expected finite numbers");
    }
    return values;
  }

  // The request for chunks. Rows that the server holds are left out (SPEC 10.1).
  void send_infer(const Slots& asking) {
    Slots sent;
    for (Slot* slot : asking)
      if (!reuse_ || !slot->reusable) sent.push_back(slot);
    out_.begin();
    out_.map(4 + reuse_ + declare_);
    out_.text("message_type"), out_.text("infer");
    out_.text("data"), write_observation(sent);
    write_indices(asking);
    if (reuse_) out_.text("reuse"), write_flags(asking, [](const Slot& slot) { return slot.reusable; });
    if (declare_) out_.text("spaces"), write_spaces();
    socket_->send(out_.buffer());
  }

  void write_spaces() {
    const Env& env = *slots_[0].env;
    out_.map(5);
    out_.text("action"), env.declare(out_);
    out_.text("env"), out_.text(env.id());
    out_.text("num_envs"), out_.natural(slots_.size());
    out_.text("max_episode_steps"), out_.integer(env.max_episode_steps());
    out_.text("client"), out_.integer(1000 * options_.offset);
  }

  // How the chunks that are over went (SPEC 5.4).
  void send_feedback(const Slots& finished) {
    out_.begin();
    out_.map(4);
    out_.text("message_type"), out_.text("feedback");
    out_.text("data"), out_.map(5);
    out_.text("obs"), write_observation(finished);
    out_.text("rewards"), write_numbers<float>("<f4", finished, [](const Slot& slot) { return slot.reward; });
    out_.text("terminated"), write_flags(finished, [](const Slot& slot) { return slot.outcome.terminated; });
    out_.text("truncated"), write_flags(finished, [](const Slot& slot) { return slot.outcome.truncated; });
    out_.text("info"), write_info(finished);
    write_indices(finished);
    if (bug("resend-feedback")) held_ = out_.buffer();  // sending masks it
    socket_->send(out_.buffer());
  }

  // How the episodes ended, where any did (SPEC 5.4).
  void write_info(const Slots& finished) {
    const bool any = std::any_of(finished.begin(), finished.end(), [](Slot* slot) { return slot->outcome.done(); });
    out_.map(any);
    if (!any) return;
    out_.text("episode"), out_.map(4);
    out_.text("r"), write_numbers<double>("<f8", finished, [](const Slot& slot) { return slot.episode_return; });
    out_.text("l"), write_numbers<std::int64_t>("<i8", finished, [](const Slot& slot) { return slot.episode_length; });
    out_.text("s"), write_flags(finished, [](const Slot& slot) { return slot.env->success(); });
    out_.text("mask"), write_flags(finished, [](const Slot& slot) { return slot.outcome.done() && slot.whole; });
  }

  // The observations of `slots` as one batch, straight from the envs into the frame (SPEC 5.2).
  void write_observation(const Slots& slots) {
    const std::vector<State>& like = slots_[0].env->states();
    out_.map(3);
    out_.text("images"), out_.map(0);
    out_.text("states"), out_.map(like.size());
    for (size_t each = 0; each < like.size(); ++each) {
      const size_t width = like[each].values.size(), size = width * sizeof(double);
      out_.text(like[each].name);
      char* to = out_.array("<f8", {slots.size(), width}, slots.size() * size);
      for (const Slot* slot : slots) to = std::copy_n(bytes_of(slot->env->states()[each].values), size, to);
    }
    out_.text("text"), out_.list(slots.size());
    for (const Slot* slot : slots) out_.text(slot->env->text());
  }

  static const char* bytes_of(const std::vector<double>& values) {
    return reinterpret_cast<const char*>(values.data());
  }

  void write_indices(const Slots& slots) {
    out_.text("env_indices"), write_numbers<std::int64_t>("<i8", slots, [](const Slot& slot) { return slot.index; });
    out_.text("step_ids"), write_numbers<std::int64_t>("<i8", slots, [](const Slot& slot) { return slot.step_id; });
  }

  template <class T, class Get>
  void write_numbers(const char* dtype, const Slots& slots, Get get) {
    std::vector<T> values;
    for (const Slot* slot : slots) values.push_back(static_cast<T>(get(*slot)));
    out_.column(dtype, values);
  }

  template <class Get>
  void write_flags(const Slots& slots, Get get) {
    write_numbers<char>("|b1", slots, get);
  }

  Options options_;
  std::vector<Slot> slots_;
  std::unique_ptr<WebSocket> socket_;
  Writer out_;
  string held_;  // the last feedback, for a client that resends it
  bool reuse_ = false, declare_ = false, asked_early_ = false;
  bool unconfirmed_ = false;  // a feedback has left, and no action has shown yet that the server has it
  std::uint64_t exchanges_ = 0;
  int attempts_ = 0;  // to reconnect, since the last completed exchange
  std::random_device random_;
};

// --------------------------------------------------------------------------------------------------- 11 vectors

void write(Writer& out, const Value& value);

void write_scalar(Writer& out, const Value& scalar) {
  out.map(3);
  out.binary("__npgeneric__"), out.boolean(true);
  out.binary("data"), write(out, scalar.items[0]);
  out.binary("dtype"), out.text(scalar.dtype);
}

void write_array(Writer& out, const Value& array) {
  std::vector<std::uint64_t> shape;
  for (const Value& length : array.items) shape.push_back(length.natural);
  char* to = out.array(array.dtype, shape, array.bytes.size());
  std::copy(array.bytes.begin(), array.bytes.end(), to);
}

// Encode a decoded value again.
void write(Writer& out, const Value& value) {
  switch (value.kind) {
    case Kind::nil: return out.nil();
    case Kind::boolean: return out.boolean(value.boolean);
    case Kind::natural: return out.natural(value.natural);
    case Kind::negative: return out.integer(value.negative);
    case Kind::real: return out.real(value.real);
    case Kind::text: return out.text(value.bytes);
    case Kind::binary: return out.binary(value.bytes);
    case Kind::array: return write_array(out, value);
    case Kind::scalar: return write_scalar(out, value);
    case Kind::list: out.list(value.items.size()); break;
    case Kind::map: out.map(value.items.size() / 2); break;
  }
  for (const Value& item : value.items) write(out, item);
}

string encode_again(string_view frame) {
  Writer out;
  out.begin();
  write(out, decode(frame));
  return string(out.message());
}

struct Tally {
  int passed = 0, failed = 0, noted = 0, skipped = 0, same = 0;
};

// What is wrong, if anything, with how a frame is read.
string grade(const string& layer, const string& verdict, const string& frame, Tally& tally) {
  try {
    const Value value = decode(frame);
    if (layer == "metadata") read_metadata(value);
    if (layer == "action") read_action(value);
  } catch (const Malformed& error) {
    return verdict == "reject" ? "" : "refused: " + string(error.what());
  }
  if (verdict == "reject") return "accepted";
  const string again = encode_again(frame);  // not `frame` where that uses other forms than msgpack's shortest
  tally.same += again == frame;
  return encode_again(again) == again ? "" : "encoded again, it is another value";
}

std::optional<string> from_hex(const string& digits) {
  string bytes(digits.size() / 2, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    unsigned value = 0;
    const char* end = digits.data() + 2 * i + 2;
    if (std::from_chars(end - 2, end, value, 16).ptr != end) return std::nullopt;
    bytes[i] = static_cast<char>(value);
  }
  if (digits.size() % 2 || digits.empty()) return std::nullopt;
  return bytes;
}

void grade_line(const string& line, Tally& tally) {
  std::istringstream words(line);
  string name, verdict, digits, rest;
  if (!(words >> name) || name[0] == '#') return;
  const std::array<string_view, 3> others{"infer", "feedback", "exchange"};
  const string layer = name.substr(0, name.find('/'));
  if (std::find(others.begin(), others.end(), layer) != others.end()) {
    ++tally.skipped;
    return;
  }
  words >> verdict >> digits >> rest;
  const std::array<string_view, 4> verdicts{"accept", "must", "should", "reject"};
  const std::optional<string> frame = from_hex(digits);
  const bool known = std::find(verdicts.begin(), verdicts.end(), verdict) != verdicts.end();
  const bool proper = frame && known && rest.empty();
  const string fault = proper ? grade(layer, verdict, *frame, tally) : "expected `id verdict hex`";
  ++(fault.empty() ? tally.passed : verdict == "should" ? tally.noted : tally.failed);
  if (!fault.empty()) say(name + ": " + fault);
}

// Grade every `id verdict hex` line of the .txt files in `folder`; the exit status. See README.md.
int run_vectors(const string& folder) {
  Tally tally;
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, error)) {
    if (entry.path().extension() != ".txt") continue;
    std::ifstream file(entry.path());
    for (string line; std::getline(file, line);) grade_line(line, tally);
  }
  if (error) say(folder + ": " + error.message());
  say(std::to_string(tally.passed) + " passed, " + std::to_string(tally.failed) + " failed, " +
      std::to_string(tally.noted) + " noted, " + std::to_string(tally.skipped) + " skipped, " +
      std::to_string(tally.same) + " encoded again byte for byte");
  return tally.passed > 0 && tally.failed == 0 ? 0 : 1;
}

// ----------------------------------------------------------------------------------------------- 12 command line

std::int64_t number(const string& text, const string& what, std::int64_t least, std::int64_t most) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < least || value > most)
    throw Usage(what + " " + text + ": expected " + std::to_string(least) + " to " + std::to_string(most));
  return value;
}

string usage() {
  string text =
      "usage: plugrl_client [--probe | --train] HOST PORT [STEPS | N_ENVS] [option ...]\n"
      "       plugrl_client --vectors DIR\n\n"
      "  HOST PORT [STEPS]           a toy env, for STEPS exchanges (default: 20; 0: without end)\n"
      "  --probe HOST PORT [N_ENVS]  the probe env of SPEC 8.1, until the server stops (default: 3 envs)\n"
      "  --train HOST PORT [N_ENVS]  Pendulum-v1, its spaces declared, until the server stops (default: 16 envs)\n"
      "  --vectors DIR               grade the vectors in DIR and exit\n"
      "  --steps N                   exchanges to run, in any mode\n"
      "  --batch N                   envs, in any mode (default of watch mode: 1)\n"
      "  --seed N                    of --train's first env; the next has the next (default: 0)\n"
      "  --no-reuse                  send every observation, whatever the server offers\n"
      "  --max-reconnects N          attempts since the last completed exchange (default: 20)\n"
      "  --bug NAME                  break one rule:\n";
  for (const auto& [name, what] : kBugs) text += "      " + (name + string(19, ' ')).substr(0, 19) + what + "\n";
  return text + "\nenvironment: PLUGRL_API_KEY, PLUGRL_CLIENT_OFFSET (set for each client that a server starts)\n";
}

string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// Take one option off `words`, whose first it is.
void take_option(std::deque<string>& words, Options& options) {
  const string name = words.front();
  words.pop_front();
  if (name == "--probe" || name == "--train") {
    options.mode = name == "--probe" ? Mode::probe : Mode::train;
    return;
  }
  if (name == "--no-reuse") {
    options.reuse = false;
    return;
  }
  if (words.empty()) throw Usage(name + ": unknown, or without its value");
  const string value = words.front();
  words.pop_front();
  if (name == "--vectors") options.mode = Mode::vectors, options.vectors = value;
  else if (name == "--bug") options.bug = value;
  else if (name == "--steps") options.steps = static_cast<std::uint64_t>(number(value, name, 0, INT64_MAX));
  else if (name == "--batch") options.envs = static_cast<int>(number(value, name, 1, 1000));
  else if (name == "--seed") options.seed = static_cast<std::uint64_t>(number(value, name, 0, INT64_MAX));
  else if (name == "--max-reconnects") options.max_reconnects = static_cast<int>(number(value, name, 0, INT32_MAX));
  else throw Usage(name + ": unknown option");
}

void check_bug(const string& name) {
  const auto same = [&](const auto& bug) { return name == bug.first; };
  if (!name.empty() && std::none_of(kBugs.begin(), kBugs.end(), same)) throw Usage("--bug " + name + ": unknown");
}

Options parse(int count, char** arguments) {
  std::deque<string> words(arguments + 1, arguments + count), places;
  Options options;
  options.steps = UINT64_MAX, options.envs = 0;  // not given
  while (!words.empty()) {
    if (words.front().rfind("--", 0) == 0) {
      take_option(words, options);
    } else {
      places.push_back(words.front());
      words.pop_front();
    }
  }
  check_bug(options.bug);
  if (options.mode == Mode::vectors) return options;
  if (places.size() < 2 || places.size() > 3) throw Usage("expected HOST PORT, and one number at most");
  options.host = places[0];
  options.port = std::to_string(number(places[1], "PORT", 1, 65535));
  const bool watch = options.mode == Mode::watch;
  if (places.size() == 3 && watch) options.steps = static_cast<std::uint64_t>(number(places[2], "STEPS", 0, INT64_MAX));
  if (places.size() == 3 && !watch) options.envs = static_cast<int>(number(places[2], "N_ENVS", 1, 1000));
  if (options.steps == UINT64_MAX) options.steps = watch ? 20 : 0;
  if (options.envs == 0) options.envs = watch ? 1 : options.mode == Mode::probe ? 3 : 16;
  options.api_key = variable("PLUGRL_API_KEY");
  const string offset = variable("PLUGRL_CLIENT_OFFSET");
  if (!offset.empty()) options.offset = number(offset, "PLUGRL_CLIENT_OFFSET", 0, INT32_MAX);
  return options;
}

std::vector<Slot> make_slots(const Options& options) {
  const std::uint64_t seed = options.seed + 1000 * static_cast<std::uint64_t>(options.offset);
  std::vector<Slot> slots;
  for (int index = 0; index < options.envs; ++index) {
    std::unique_ptr<Env> env = std::make_unique<CartEnv>(index);
    if (options.mode == Mode::probe) env = std::make_unique<ProbeEnv>(index);
    if (options.mode == Mode::train) env = std::make_unique<PendulumEnv>(seed + static_cast<std::uint64_t>(index));
    slots.push_back(Slot{index, std::move(env)});
  }
  return slots;
}

void interrupt(int) { interrupted = 1; }

int run_client(const Options& options) {
  std::signal(SIGINT, interrupt);
  std::signal(SIGTERM, interrupt);
  Client client(options, make_slots(options));
  try {
    return client.run();
  } catch (const Interrupted&) {
    interrupted = 0;
    return client.leave(1000, "interrupted", 130);
  }
}

}  // namespace

int main(int count, char** arguments) {
  try {
    if (count < 2 || string_view(arguments[1]) == "--help" || string_view(arguments[1]) == "-h") {
      std::cout << usage();
      return count < 2 ? 2 : 0;
    }
    const Options options = parse(count, arguments);
    return options.mode == Mode::vectors ? run_vectors(options.vectors) : run_client(options);
  } catch (const Usage& error) {
    say(string(error.what()) + " (--help tells more)");
    return 2;
  } catch (const std::exception& error) {
    say(error.what());
    return 1;
  }
}
