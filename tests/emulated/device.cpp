// An accelerator made of host memory, on torch's PrivateUse1 key: a device type of its own with guards, streams
// and an allocator. An operator without a kernel here runs the CPU's on the same bytes. It counts what makes a
// host wait for a real device, and refuses what a real device refuses: tensors of two devices in one call.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;
constexpr c10::DeviceIndex kDevices = 2;
constexpr size_t kHeader = 64;

std::atomic<int64_t> live{0}, peak{0}, synchronisations{0}, borrowed{0};
thread_local c10::DeviceIndex current = 0;
thread_local c10::StreamId streams[kDevices] = {0, 0};

struct Memory final : c10::Allocator {
  static void release(void* data) {
    if (data == nullptr) return;
    char* block = static_cast<char*>(data) - kHeader;
    live -= *reinterpret_cast<int64_t*>(block);
    std::free(block);
  }
  c10::DataPtr allocate(size_t bytes) override {
    auto* block = static_cast<char*>(std::aligned_alloc(kHeader, (bytes / kHeader + 2) * kHeader));
    *reinterpret_cast<int64_t*>(block) = static_cast<int64_t>(bytes);
    const int64_t now = live += static_cast<int64_t>(bytes);
    for (int64_t most = peak; now > most && !peak.compare_exchange_weak(most, now);) {
    }
    void* data = block + kHeader;
    return {data, data, &release, c10::Device(kType, current)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};
Memory memory;
REGISTER_ALLOCATOR(kType, &memory);

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device getDevice() const override { return {kType, current}; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() >= 0 && device.index() < kDevices, "no emulated device ", int(device.index()));
    current = device.index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) current = device.index();
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    const auto before = getDevice();
    setDevice(device);
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }
  static c10::DeviceIndex index_of(c10::Device device) { return device.has_index() ? device.index() : current; }
  static c10::Stream stream(c10::Device device, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, {kType, index_of(device)}, id);
  }
  c10::Stream getStream(c10::Device device) const override {
    return stream(device, streams[index_of(device)]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return stream(device, 0);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    static std::atomic<int64_t> next{1};
    return stream(device, next++);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getNewStream(device, 0); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const auto before = getStream(stream.device());
    streams[stream.device_index()] = stream.id();
    return before;
  }
  void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {
    static int recorded = 0;
    *event = &recorded;
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  void synchronizeEvent(void*) const override { synchronisations++; }
  void synchronizeStream(const c10::Stream&) const override { synchronisations++; }
  void synchronizeDevice(const c10::DeviceIndex) const override { synchronisations++; }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  void setCurrentDevice(c10::DeviceIndex device) const override { current = device; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const auto before = current;
    current = device;
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? current : exchangeDevice(device);
  }
  at::Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
  bool isPinnedPtr(const void*) const override { return false; }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return at::detail::createCPUGenerator(); }
  at::Device getDeviceFromPtr(void*) const override { return {kType, current}; }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    auto fresh = memory.allocate(bytes);
    if (storage.data() != nullptr) std::memcpy(fresh.get(), storage.data(), std::min(bytes, storage.nbytes()));
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(fresh));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }
};
Hooks hooks;
const bool registered = (at::RegisterPrivateUse1HooksInterface(&hooks), true);

bool ours(const at::Tensor& tensor) { return tensor.defined() && tensor.device().type() == kType; }

// The same bytes as a tensor of the CPU, which the caller must not keep longer than the original.
at::Tensor host(const at::Tensor& tensor) {
  if (!ours(tensor)) return tensor;
  const auto& storage = tensor.storage();
  c10::DataPtr data(storage.mutable_data(), at::kCPU);
  c10::Storage same(c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(data),
                    c10::GetCPUAllocator(), true);
  auto alias = at::detail::make_tensor<c10::TensorImpl>(
      std::move(same), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  alias.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return alias;
}

at::Tensor to_device(const at::Tensor& cpu) {
  at::Tensor made = at::detail::empty_strided_generic(
      cpu.sizes(), cpu.strides(), &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), cpu.scalar_type());
  host(made).copy_(cpu);
  return made;
}

// Operators whose result's shape or value the host must wait for.
const std::set<std::string> kWaits = {"aten::nonzero", "aten::masked_select", "aten::equal", "aten::is_nonzero",
                                      "aten::_unique2", "aten::repeat_interleave", "aten::unique_consecutive"};

// Runs the CPU's kernel on the same bytes. What it returns is the original where it changed one in place.
void borrow(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  borrowed++;
  if (kWaits.count(schema.name())) synchronisations++;
  const size_t count = schema.arguments().size(), first = stack->size() - count;
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs;  // alias, original
  const auto lent = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    TORCH_CHECK(ours(tensor) || tensor.dim() == 0 || tensor.device().type() == at::kMeta,
                "Expected all tensors to be on the same device, but ", schema.name(), " got one on ",
                tensor.device(), " beside one on ", c10::Device(kType, current));
    if (!ours(tensor)) return tensor;
    pairs.emplace_back(host(tensor), tensor);
    return pairs.back().first;
  };
  for (size_t at = first; at < stack->size(); at++) {
    auto& value = (*stack)[at];
    if (value.isTensor()) {
      value = lent(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(lent(tensor));
      value = std::move(list);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
        list.push_back(tensor ? std::optional<at::Tensor>(lent(*tensor)) : std::nullopt);
      }
      value = std::move(list);
    } else if (value.isDevice() && value.toDevice().type() == kType) {
      value = c10::Device(at::kCPU);
    }
  }
  {
    at::AutoDispatchBelowADInplaceOrView below;
    op.callBoxed(stack);
  }
  for (const auto& [alias, original] : pairs) {
    if (alias.sizes() == original.sizes()) continue;  // an output that was resized
    at::native::resize_(original, alias.sizes(), std::nullopt);
    host(original).copy_(alias);
  }
  const auto returned = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    for (const auto& [alias, original] : pairs) {
      if (tensor.is_same(alias)) return original;
    }
    return to_device(tensor);
  };
  for (size_t at = first; at < stack->size(); at++) {
    auto& value = (*stack)[at];
    if (value.isTensor()) {
      value = returned(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(returned(tensor));
      value = std::move(list);
    }
  }
}

c10::Device wanted(std::optional<c10::Device> device) {
  return device && device->has_index() ? *device : c10::Device(kType, current);
}

at::Tensor empty(c10::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<c10::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(wanted(device));
  return at::detail::empty_generic(sizes, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<c10::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(wanted(device));
  return at::detail::empty_strided_generic(sizes, strides, &memory,
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (!ours(to) && !non_blocking) synchronisations++;
  host(to).copy_(host(from));
  return to;
}

at::Tensor copy_and_resize(const at::Tensor& from, const at::Tensor& to) {
  at::native::resize_(to, from.sizes(), std::nullopt);
  return copy_from(from, to, false);
}

at::Scalar item(const at::Tensor& tensor) {
  synchronisations++;
  return host(tensor).item();
}

at::Tensor& set_source(at::Tensor& tensor, at::Storage source, int64_t offset, c10::IntArrayRef sizes,
                       c10::IntArrayRef strides) {
  tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

void set_device(int64_t index) { Guard().setDevice({kType, static_cast<c10::DeviceIndex>(index)}); }
int64_t device() { return current; }
std::vector<int64_t> stats() { return {live, peak, synchronisations, borrowed}; }

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&borrow>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_and_resize);
  library.impl("as_strided", at::native::as_strided_tensorimpl);
  library.impl("view", at::native::view);
  library.impl("_reshape_alias", at::native::_reshape_alias);
  library.impl("resize_", at::native::resize_);
  library.impl("set_.source_Storage_storage_offset", set_source);
  library.impl("_local_scalar_dense", item);
}

TORCH_LIBRARY(rlt_emulated, library) {
  library.def("set_device(int index) -> ()", set_device);
  library.def("device() -> int", device);
  library.def("stats() -> int[]", stats);
  library.def("host(Tensor(a) tensor) -> Tensor(a)");
}
TORCH_LIBRARY_IMPL(rlt_emulated, PrivateUse1, library) { library.impl("host", host); }
TORCH_LIBRARY_IMPL(rlt_emulated, CPU, library) { library.impl("host", host); }

}  // namespace
