/* A library of DietCode's for CPUs in C++17, by tvm-ffi and the launcher; docs/cpp.md has an example. */
#ifndef DIETCODE_H
#define DIETCODE_H

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <cstdint>
#include <cstdlib>
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

/* The functions of a library; any thread may call them. They throw tvm::ffi::Error where a dtype or an extent does not fit.
 * Values outside of the declared ranges, and an output that overlaps an input, are not looked for. */
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
    run = bound("run", num_parts_of(folder + "/manifest.json"));
    select = code->GetFunction("select").value();
    if (code->GetFunction("pack")) pack = find_("pack");
  }

  /* What packs one of several constants, by the `function` that the manifest names for it. */
  tvm::ffi::Function packing(const std::string& name) const { return find_(name); }

 private:
  /* Parts that threads share out of a loop, as the manifest has them; where it does not say, one for each thread. */
  static std::int64_t num_parts_of(const std::string& manifest) {
    std::ifstream file(manifest);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    for (const char* name : {"num_parts", "num_threads"}) {
      /* Of the manifest itself, by its indentation: a shape variable may have that name. */
      const auto field = std::string("\n  \"") + name + "\":";
      const auto found = text.find(field);
      if (found != std::string::npos) return std::strtoll(text.c_str() + found + field.size(), nullptr, 10);
    }
    return 0;
  }
  std::function<tvm::ffi::Function(const std::string&)> find_;
};

}  // namespace dietcode
#endif
