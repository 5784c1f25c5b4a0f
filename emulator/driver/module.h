// Loading code and finding functions, as the files of this folder share it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "emulator/driver/state.h"

namespace ops_debug::emulator {

// Parses `ptx`; on failure says why on stderr and puts it into `*why`.
CUresult LoadProgram(Device& device, std::string_view ptx, std::unique_ptr<Program>* program,
                     std::string* why);

// The function `name` of `module`; nullptr if there is no such entry.
CUfunc_st* FindFunction(Device& device, CUmod_st& module, const std::string& name);

void UnloadModule(Device& device, CUmod_st& module);
void UnloadModulesOf(Device& device, const CUctx_st& context);

// The library's module in `context`, loaded if it is not there yet.
CUresult LibraryModule(Device& device, CUlib_st& library, CUctx_st& context, CUmod_st** module);

// What a CUfunction argument names. The driver accepts a CUkernel there too: its function in
// `context`.
CUresult ResolveFunction(Device& device, CUctx_st& context, CUfunction handle,
                         CUfunc_st** function);

}  // namespace ops_debug::emulator
