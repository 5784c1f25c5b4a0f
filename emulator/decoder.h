// Turns the PTX of one function into decoded instructions. One method per family of instructions;
// the files decode_*.cc hold them by theme, decode.cc the walk over the body and the table of
// opcodes.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulator/extended_operation.h"
#include "emulator/program.h"
#include "emulator/ptx_type.h"

namespace ops_debug::emulator {

struct AddressOperand;

class Decoder {
 public:
  Decoder(const Program::Impl& program, const ptx::Function& source, const Kernel* kernel,
          Function& out);
  void Run();

  using Method = bool (Decoder::*)(const ptx::Instruction&);
  // What decodes each opcode.
  static const std::unordered_map<std::string_view, Method>& Methods();

 private:
  // ---- walk (decode.cc)
  void DeclareParameters();
  void DeclareVariable(const ptx::Variable& variable);
  void DecodeStatement(const ptx::Instruction& instruction);
  void ResolveLabels();
  Symbol FindSymbol(std::string_view name) const;
  uint32_t AllocateLocal(uint64_t size_bytes, uint64_t alignment_bytes);
  Slot ParameterSlot(const ptx::Variable& variable);

  // ---- operands (decode_operands.cc)
  Ref RegisterRef(ptx::RegisterId id);
  uint8_t RegisterShift(ptx::RegisterId id) const;
  bool IsPredicate(ptx::RegisterId id) const;
  bool IsVectorRegister(ptx::RegisterId id) const;
  Ref Temporary(uint8_t shift);
  Ref TemporaryPredicate();
  Ref Constant(uint8_t shift, uint64_t bits);
  Ref PredicateConstant(bool value);
  Ref Read(const ptx::Operand& operand, Type type);
  Ref ReadBits(const ptx::Operand& operand, uint8_t shift) {
    return Read(operand, BitsType(shift));
  }
  Ref ReadImmediate(const ptx::Operand& operand, Type type);
  Ref ReadSpecial(std::string_view name, Type type);
  Ref ReadSymbol(const ptx::Operand& operand, uint8_t shift);
  Ref SymbolAddress(const Symbol& symbol, int64_t offset, uint8_t shift);
  Ref ReadPredicate(const ptx::Operand& operand);  // negation already applied
  Ref WritePredicate(const ptx::Operand& operand);
  struct Destination {
    Ref ref = kNoRef;        // where the operation writes
    Ref final_ref = kNoRef;  // the register, if it is wider
    uint8_t final_shift = 0;
    Type type = Type::kNone;
  };
  Destination Write(const ptx::Operand& operand, Type type);
  void Finish(const Destination& destination);
  Ref Resize(Ref from, Type type, uint8_t to_shift);

  // ---- emission
  Instruction& Emit(Op op);
  // Looks `key` up among the lane operations; unknown keys make the instruction unsupported.
  void EmitAlu(const std::string& key, uint8_t shift, Ref d, Ref a, Ref b = kNoRef, Ref c = kNoRef,
               uint64_t immediate = 0);
  void EmitCompare(const std::string& key, Ref d, Ref a, Ref b);
  void EmitPredicate(PredicateOp operation, Ref d, Ref a, Ref b = kNoRef);
  void EmitExtended(std::shared_ptr<const ExtendedOperation> operation);
  // All lanes of the warp that have not exited meet here (.aligned instructions).
  void EmitConvergence();
  void EmitSelect(uint8_t shift, Ref d, Ref a, Ref b, Ref predicate);

  // ---- integer and float arithmetic (decode_arithmetic.cc)
  bool AddSub(const ptx::Instruction& in);
  bool Multiply(const ptx::Instruction& in);
  bool MultiplyAdd(const ptx::Instruction& in);
  bool FusedMultiplyAdd(const ptx::Instruction& in);
  bool Divide(const ptx::Instruction& in);
  bool MinMax(const ptx::Instruction& in);
  bool NegateAbs(const ptx::Instruction& in);
  bool FloatFunction(const ptx::Instruction& in);
  bool Carry(const ptx::Instruction& in, std::string key, bool carry_in, bool carry_out,
             size_t sources);
  bool IntegerSimple(const ptx::Instruction& in);  // rem, sad, dp4a, mul24...
  bool FloatOperation(const ptx::Instruction& in, std::string operation, Type type, size_t sources);
  bool CopySign(const ptx::Instruction& in);
  // ---- bits and comparisons (decode_logic.cc)
  bool Logic(const ptx::Instruction& in);
  bool Shift(const ptx::Instruction& in);
  bool BitCount(const ptx::Instruction& in);
  bool BitField(const ptx::Instruction& in);
  bool Lop3(const ptx::Instruction& in);
  bool Permute(const ptx::Instruction& in);
  bool FunnelShift(const ptx::Instruction& in);
  bool SetPredicate(const ptx::Instruction& in);
  bool Set(const ptx::Instruction& in);
  bool Select(const ptx::Instruction& in);
  bool Slct(const ptx::Instruction& in);
  bool TestProperty(const ptx::Instruction& in);
  // Emits predicate = a (relation) b; `high` compares the upper halves of packed types.
  void Compare(const ptx::Instruction& in, Type type, Ref d, Ref a, Ref b);
  // ---- data movement (decode_convert.cc)
  bool Move(const ptx::Instruction& in);
  bool Pack(const ptx::Instruction& in, Type type);
  bool Unpack(const ptx::Instruction& in, Type type);
  bool Convert(const ptx::Instruction& in);
  bool ConvertPacked(const ptx::Instruction& in, Type to);
  Ref ConvertTo(const ptx::Instruction& in, Ref from, Type from_type, Type to_type);
  Ref FloatToInteger(const ptx::Instruction& in, Ref from, Type from_type, Type to_type);
  Ref FloatToFloat(const ptx::Instruction& in, Ref from, Type from_type, Type to_type);
  Ref IntegerToFloat(const ptx::Instruction& in, Ref from, Type from_type, Type to_type);
  bool ConvertAddress(const ptx::Instruction& in);
  bool IsSpace(const ptx::Instruction& in);
  // ---- memory (decode_memory.cc)
  bool Load(const ptx::Instruction& in);
  bool Store(const ptx::Instruction& in);
  bool Atomic(const ptx::Instruction& in);
  bool CopyAsync(const ptx::Instruction& in);
  bool ReadAddress(const ptx::Operand& operand, MemoryAccess& access, Ref* address);
  void ReadQualifiers(const ptx::Instruction& in, MemoryAccess& access);
  // ---- control and synchronisation (decode_control.cc)
  bool Branch(const ptx::Instruction& in);
  bool BranchIndexed(const ptx::Instruction& in);
  bool Call(const ptx::Instruction& in);
  bool ReadSlots(const ptx::Operand& list, bool results, std::vector<Slot>& out);
  bool Return(const ptx::Instruction& in);
  bool Exit(const ptx::Instruction& in);
  bool Trap(const ptx::Instruction& in);
  bool Barrier(const ptx::Instruction& in);
  bool Shuffle(const ptx::Instruction& in);
  bool Vote(const ptx::Instruction& in);
  bool Match(const ptx::Instruction& in);
  bool Redux(const ptx::Instruction& in);
  bool ActiveMask(const ptx::Instruction& in);
  bool Elect(const ptx::Instruction& in);
  bool Fence(const ptx::Instruction& in);
  bool Nanosleep(const ptx::Instruction& in);
  bool Nothing(const ptx::Instruction& in);
  bool GridDependency(const ptx::Instruction& in);
  bool CreatePolicy(const ptx::Instruction& in);

  // ---- asynchronous copies, mbarriers and clusters (decode_async.cc, decode_mbarrier.cc)
  bool Mbarrier(const ptx::Instruction& in);
  bool CopyAsyncMbarrierArrive(const ptx::Instruction& in);
  bool CopyAsyncGroup(const ptx::Instruction& in);
  bool CopyBulk(const ptx::Instruction& in);
  bool CopyTensor(const ptx::Instruction& in);
  bool CopyReduceBulk(const ptx::Instruction& in);
  bool StartBulk(const ptx::Instruction& in, const char* name, bool reduces);
  static void BulkSpaces(const ptx::Instruction& in, Space* target, Space* source);
  bool StoreAsync(const ptx::Instruction& in);  // st.async, red.async
  bool MapShared(const ptx::Instruction& in);   // mapa, getctarank
  bool TensorMapReplace(const ptx::Instruction& in);
  bool ConvertSharedAddress(const ptx::Instruction& in);
  bool IsSharedSpace(const ptx::Instruction& in);
  // In the state space that the instruction names, or in `space`.
  bool ReadAddressOperand(const ptx::Operand& operand, const ptx::Instruction& in,
                          AddressOperand* address);
  bool ReadAddressIn(Space space, const ptx::Operand& operand, AddressOperand* address);

  // ---- vector and 128-bit registers, the stack of alloca (decode_vector.cc, decode_stack.cc)
  // An instruction whose vector registers are written out as their elements. Lives as long as the
  // spans that point into it.
  struct Expanded {
    ptx::Instruction instruction;
    std::vector<ptx::Operand> operands;
    std::deque<std::vector<ptx::Operand>> children;
    std::vector<std::string_view> modifiers;
  };
  bool ExpandVectors(const ptx::Instruction& in, Expanded& out);  // false: there are none
  ptx::Operand ExpandOperand(const ptx::Operand& operand, Expanded& out, bool* found);
  ptx::Operand Component(ptx::RegisterId id, uint32_t index);
  uint32_t ComponentCount(ptx::RegisterId id) const;
  bool MoveVector(const ptx::Instruction& in);
  bool AtomicWide(const ptx::Instruction& in);  // atom.exch.b128, atom.cas.b128
  bool StackSave(const ptx::Instruction& in);
  bool StackRestore(const ptx::Instruction& in);
  bool Alloca(const ptx::Instruction& in);
  void KeepStack();
  void GiveBackStack();
  bool MixedPrecision(const ptx::Instruction& in, std::string operation);
  bool ConvertEight(const ptx::Instruction& in, Type to, Type from);  // e4m3x2, e5m2x2
  bool PackSaturated(const ptx::Instruction& in);                     // cvt.pack

  // ---- matrices (decode_matrix.cc)
  bool MatrixLoad(const ptx::Instruction& in);  // ldmatrix
  bool MatrixStore(const ptx::Instruction& in);
  bool MatrixMove(const ptx::Instruction& in);
  bool MatrixMultiply(const ptx::Instruction& in);  // mma
  bool WarpMatrix(const ptx::Instruction& in);      // wmma
  bool WarpMatrixCopy(const ptx::Instruction& in, bool is_load);
  bool Warpgroup(const ptx::Instruction& in);  // wgmma
  bool ReadRegisters(const ptx::Operand& operand, uint8_t shift, std::vector<Ref>& out);
  bool WriteRegisters(const ptx::Operand& operand, uint8_t shift, std::vector<Ref>& out,
                      std::vector<Destination>& destinations);

  // ---- textures and surfaces (decode_texture.cc)
  bool Texture(const ptx::Instruction& in);     // tex, tld4
  bool Surface(const ptx::Instruction& in);     // suld, sust, sured
  bool ImageQuery(const ptx::Instruction& in);  // txq, suq
  bool ReadImageAddress(const ptx::Operand& operand, uint8_t geometry, Ref* handle, Ref* layer,
                        Ref* coordinates);

  template <class T>
  T* Own(std::vector<std::unique_ptr<T>>& list) {
    list.push_back(std::make_unique<T>());
    return list.back().get();
  }

  const Program::Impl& program_;
  const ptx::Function& source_;
  const Kernel* kernel_;
  Function& out_;
  const LaneRegistry& lanes_;
  bool supported_ = true;  // of the instruction that is being decoded

  std::vector<Ref> register_refs_;
  // Elements of vector registers are registers of their own, behind those of the source: type by
  // (id - number of the source's registers).
  std::vector<std::string_view> component_types_;
  std::map<std::pair<ptx::RegisterId, uint32_t>, ptx::RegisterId> components_;
  bool has_vectors_ = false;
  Ref saved_stack_ = kNoRef;  // alloca's stack pointer at the function's start
  uint32_t frame_bytes_ = 0;
  Ref carry_flag_ = kNoRef;
  std::map<std::pair<uint8_t, uint64_t>, Ref> constants_;

  // Scopes of labels and variables. Labels can be used before they appear, so a use is stored with
  // its scope.
  struct Scope {
    uint32_t parent = 0;
    std::unordered_map<std::string_view, uint32_t> labels;  // index into out_.code
    std::unordered_map<std::string_view, Symbol> symbols;
    std::unordered_map<std::string_view, std::string_view>
        tables;  // label of a .branchtargets -> its text
  };
  std::vector<Scope> scopes_;
  uint32_t scope_ = 0;
  std::string_view last_label_;
  struct LabelUse {
    uint32_t instruction = 0;
    uint32_t scope = 0;
    std::string_view name;
    bool is_table = false;
  };
  std::vector<LabelUse> label_uses_;
};

}  // namespace ops_debug::emulator
