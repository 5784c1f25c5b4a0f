// Owning tables of driver objects. A CUDA handle is a bare pointer that the program passes back;
// looking it up before use turns a stale or foreign handle into CUDA_ERROR_INVALID_HANDLE instead
// of a crash, as the real driver does.
#pragma once

#include <memory>
#include <unordered_map>
#include <utility>

namespace ops_debug::emulator {

template <class T>
class HandleTable {
 public:
  T* Add(std::unique_ptr<T> object) {
    T* handle = object.get();
    objects_.emplace(handle, std::move(object));
    return handle;
  }

  // The object if `handle` is live, else nullptr. `handle` is not dereferenced.
  T* Find(const void* handle) const {
    auto it = objects_.find(handle);
    return it == objects_.end() ? nullptr : it->second.get();
  }

  bool Remove(const void* handle) { return objects_.erase(handle) != 0; }

  template <class Action>
  void ForEach(Action action) const {
    for (const auto& [handle, object] : objects_) action(*object);
  }

  template <class Predicate>
  void RemoveIf(Predicate predicate) {
    std::erase_if(objects_, [&](const auto& entry) { return predicate(*entry.second); });
  }

 private:
  std::unordered_map<const void*, std::unique_ptr<T>> objects_;
};

}  // namespace ops_debug::emulator
