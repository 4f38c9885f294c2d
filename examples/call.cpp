// Calls the library of small-dense.yaml, Y[T, 512] = relu(X[T, 256] · W[512, 256]ᵀ + bias): call FOLDER LAUNCHER LANES T
#include <dietcode.h>

#include <iostream>

int main(int, char** words) {
  const std::int64_t lanes = std::stol(words[3]), t = std::stol(words[4]), n = 512, k = 256;
  dietcode::Library library(words[1], words[2], 2);

  // Once: the weight into the library's layout, [batch, panels, reduction, lanes].
  std::vector<float> weight(n * k, 0.25f), panels(n * k);
  dietcode::Tensor w(weight.data(), {n, k}), packed(panels.data(), {1, n / lanes, k, lanes});
  library.pack(w.view(), packed.view());

  // For each call: tensors in the order of the manifest's argument_order, the output, the shape variables.
  std::vector<float> input(t * k, 0.5f), offset(n, -1.0f), output(t * n);
  dietcode::Tensor x(input.data(), {t, k}), bias(offset.data(), {n}), y(output.data(), {t, n});
  library.run(x.view(), packed.view(), bias.view(), y.view(), t);
  std::cout << "category " << library.select(t).cast<std::int64_t>() << ", Y[0, 0] = " << output.front()
            << ", Y[T-1, 511] = " << output.back() << "\n";
}
