/* A library of DietCode's for CPUs in C++17, by tvm-ffi and the launcher; docs/cpp.md has an example. */
#ifndef DIETCODE_H
#define DIETCODE_H

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace dietcode {

/* Whose threads a call runs on: the process's pool; OpenMP's team, where it comes in time, or always. */
enum class Team : std::int64_t { own, automatic, host };

/* Contiguous memory as functions take it: `view()` is valid as long as this is and the memory. */
class Tensor {
 public:
  Tensor(void* values, DLDataType dtype, std::vector<std::int64_t> extents) : extents_(std::move(extents)) {
    const auto ndim = static_cast<std::int32_t>(extents_.size());
    view_ = {values, {kDLCPU, 0}, ndim, dtype, extents_.data(), nullptr, 0};
  }
  Tensor(float* values, std::vector<std::int64_t> extents)
      : Tensor(values, {kDLFloat, 32, 1}, std::move(extents)) {}
  Tensor(const Tensor&) = delete;
  DLTensor* view() { return &view_; }

 private:
  std::vector<std::int64_t> extents_;
  DLTensor view_;
};

/* The functions of a library; any thread may call them. They throw tvm::ffi::Error where a dtype or an extent does not fit,
 * or a shape variable is outside of its declared range. An output that overlaps an input is not looked for. */
class Library {
 public:
  tvm::ffi::Function run;    /* inputs, the output that it writes, values of the shape variables */
  tvm::ffi::Function pack;   /* a constant, and where its panels go; where there is one, see packing() */
  tvm::ffi::Function select; /* values of the shape variables; returns the category that serves them */

  /* `folder` is what was tuned or pulled, and has been verified; `launcher` is the path of launcher.so. */
  Library(const std::string& folder, const std::string& launcher, int num_threads, Team team = Team::own) {
    std::string path = folder + "/library.so";
    auto code = tvm::ffi::Module::LoadFromFile(path);
    auto own = tvm::ffi::Module::LoadFromFile(launcher);
    own->GetFunction("attach").value()(path);
    auto bind = own->GetFunction("bind").value();
    const std::int64_t cores = 0, all_count = 0;
    const auto bound = [=](const std::string& name, std::int64_t num_parts) {
      auto function = code->GetFunction(name).value();
      return bind(function, num_threads, static_cast<std::int64_t>(team), cores, all_count, num_parts)
          .cast<tvm::ffi::Function>();
    };
    find_ = [=](const std::string& name) { return bound(name, 0); };
    const auto manifest = manifest_of(folder);
    const auto ranges = ranges_of(manifest);
    run = within(ranges, bound("run", num_parts_of(manifest)));
    select = within(ranges, code->GetFunction("select").value());
    if (code->GetFunction("pack")) pack = find_("pack");
  }

  /* What packs one of several constants, by the `function` that the manifest names for it. */
  tvm::ffi::Function packing(const std::string& name) const { return find_(name); }

 private:
  /* A shape variable: its least and its largest value, and all of them where they are listed. */
  struct Range {
    std::string name;
    std::int64_t least, most;
    std::vector<std::int64_t> listed;
    bool has(std::int64_t value) const {
      const bool is_listed = listed.empty() || std::find(listed.begin(), listed.end(), value) != listed.end();
      return value >= least && value <= most && is_listed;
    }
    std::string text() const {
      if (listed.empty()) return std::to_string(least) + "..." + std::to_string(most);
      std::string all;
      for (auto value : listed) all += (all.empty() ? "one of " : ", ") + std::to_string(value);
      return all;
    }
  };

  using Object = tvm::ffi::json::Object;
  using Array = tvm::ffi::json::Array;

  static Object manifest_of(const std::string& folder) {
    std::ifstream file(folder + "/manifest.json");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    return tvm::ffi::json::Parse(text).cast<Object>();
  }

  /* Parts that threads share out of a loop, as the manifest has them; where it does not say, one for each thread. */
  static std::int64_t num_parts_of(const Object& manifest) {
    for (const char* name : {"num_parts", "num_threads"})
      if (const auto found = manifest.Get(tvm::ffi::String(name))) return (*found).cast<std::int64_t>();
    return 0;
  }

  static std::vector<Range> ranges_of(const Object& manifest) {
    const auto variables = manifest.at(tvm::ffi::String("variables")).cast<Object>();
    std::vector<Range> ranges;
    for (const auto& name : manifest.at(tvm::ffi::String("variable_order")).cast<Array>()) {
      const auto facts = variables.at(name).cast<Object>();
      const auto number = [&](const char* field) { return facts.at(tvm::ffi::String(field)).cast<std::int64_t>(); };
      Range range{name.cast<tvm::ffi::String>(), number("min"), number("max"), {}};
      if (const auto listed = facts.at(tvm::ffi::String("values")).as<Array>())
        for (const auto& value : *listed) range.listed.push_back(value.cast<std::int64_t>());
      ranges.push_back(std::move(range));
    }
    return ranges;
  }

  /* A function whose last arguments are the shape variables, each in its range. */
  static tvm::ffi::Function within(const std::vector<Range>& ranges, const tvm::ffi::Function& function) {
    const auto count = static_cast<std::int32_t>(ranges.size());
    return tvm::ffi::Function::FromPacked([=](const tvm::ffi::AnyView* arguments, std::int32_t given, tvm::ffi::Any* result) {
      for (std::int32_t i = 0; given >= count && i < count; i++) {
        const auto value = arguments[given - count + i].try_cast<std::int64_t>();
        if (!value || ranges[i].has(*value)) continue; /* the code refuses what is no integer */
        TVM_FFI_THROW(ValueError) << ranges[i].name << ": " << *value << "; allowed: " << ranges[i].text();
      }
      function.CallPacked(arguments, given, result);
    });
  }
  std::function<tvm::ffi::Function(const std::string&)> find_;
};

}  // namespace dietcode
#endif
