// Decoding of the matrix instructions: ldmatrix, stmatrix, movmatrix, mma, wmma and wgmma as sm_90
// has them. Left out, and so reported as unsupported when executed: the forms of sm_100 and later
// (ldmatrix and stmatrix of 8-bit elements, mma with .kind or .block_scale, tcgen05).
#include <string>

#include "emulator/decoder.h"
#include "emulator/matrix_copy.h"
#include "emulator/matrix_multiply.h"
#include "emulator/matrix_warpgroup.h"

namespace ops_debug::emulator {
namespace {

using Kind = ptx::Operand::Kind;

std::span<const ptx::Operand> Elements(const ptx::Operand& operand) {
  if (operand.kind == Kind::kVector) return operand.children;
  return {&operand, 1};
}

Space MatrixSpace(const ptx::Instruction& in) {
  for (std::string_view modifier : in.modifiers) {
    if (modifier == ".global") return Space::kGlobal;
    if (modifier == ".shared" || modifier == ".shared::cta") return Space::kShared;
  }
  return Space::kGeneric;
}

// .x1, .x2, .x4; 0 if there is none.
size_t MatrixCount(const ptx::Instruction& in) {
  return in.Has(".x1") ? 1 : in.Has(".x2") ? 2 : in.Has(".x4") ? 4 : 0;
}

bool IsQuad(MatrixShape shape, MatrixType type) {
  return shape.m == 8 && shape.n == 8 && shape.k == 4 && type == MatrixType::kF16;
}

// The depths that mma.sync has for a type, in bits of a row of a: m8n8 one of 128 bits; m16n8 one
// or two; wgmma two. f64 has depths of its own.
bool IsDepth(MatrixShape shape, MatrixType type) {
  if (type == MatrixType::kF64) {
    return shape.k == 4 || (shape.m == 16 && (shape.k == 8 || shape.k == 16));
  }
  const uint32_t bits = shape.k * BitsOf(type);
  return bits == 128 || (shape.m >= 16 && bits == 256);
}

bool IsInteger(MatrixType type) { return IsNarrowInteger(type) || type == MatrixType::kB1; }

// Accumulator and operand types that go together.
bool AreTypes(MatrixType a, MatrixType b, MatrixType c, MatrixType d) {
  const bool single = c == MatrixType::kF32 && d == MatrixType::kF32;
  const auto is_half = [](MatrixType type) {
    return type == MatrixType::kF16 || type == MatrixType::kF32;
  };
  const auto is_fp8 = [](MatrixType type) {
    return type == MatrixType::kE4m3 || type == MatrixType::kE5m2;
  };
  if (a == MatrixType::kF64) return b == a && c == a && d == a;
  if (a == MatrixType::kF16) return b == a && is_half(c) && is_half(d);
  if (is_fp8(a)) return is_fp8(b) && c == d && is_half(c);
  if (IsNarrowFloat(a)) return b == a && single;
  if (IsInteger(a)) {
    return IsInteger(b) && BitsOf(a) == BitsOf(b) && c == MatrixType::kS32 && d == c;
  }
  return false;
}

MatrixRule RuleOf(const ptx::Instruction& in, MatrixType a) {
  switch (a) {
    case MatrixType::kF64:
      return MatrixRule::kDouble;
    case MatrixType::kB1:
      return in.Has(".and") ? MatrixRule::kAndPopc : MatrixRule::kXorPopc;
    case MatrixType::kE4m3:
    case MatrixType::kE5m2:
      return MatrixRule::kConverted;
    default:
      return IsNarrowInteger(a) ? MatrixRule::kInteger : MatrixRule::kFused;
  }
}

uint8_t RegisterShiftOf(MatrixType type) { return type == MatrixType::kF64 ? 3 : 2; }

}  // namespace

bool Decoder::ReadRegisters(const ptx::Operand& operand, uint8_t shift, std::vector<Ref>& out) {
  for (const ptx::Operand& element : Elements(operand)) {
    out.push_back(Read(element, shift == 3 ? Type::kF64 : Type::kB32));
  }
  return supported_;
}

bool Decoder::WriteRegisters(const ptx::Operand& operand, uint8_t shift, std::vector<Ref>& out,
                             std::vector<Destination>& destinations) {
  for (const ptx::Operand& element : Elements(operand)) {
    destinations.push_back(Write(element, BitsType(shift)));
    out.push_back(destinations.back().ref);
  }
  return supported_;
}

bool Decoder::MatrixLoad(const ptx::Instruction& in) {
  const size_t count = MatrixCount(in);
  if (in.operands.size() != 2 || count == 0 || !in.Has(".m8n8") || !in.Has(".b16")) return false;
  auto operation = std::make_shared<RowsOperation>();
  operation->transpose = in.Has(".trans");
  MemoryAccess access;
  access.space = MatrixSpace(in);
  if (!ReadAddress(in.operands[1], access, &operation->address.base)) return false;
  operation->address.space = access.space;
  operation->address.is_32bit = access.address_is_32bit;
  operation->address.offset = access.offset;
  std::vector<Destination> destinations;
  if (!WriteRegisters(in.operands[0], 2, operation->registers, destinations) ||
      destinations.size() != count)
    return false;
  EmitConvergence();
  EmitExtended(std::move(operation));
  for (const Destination& destination : destinations) Finish(destination);
  return true;
}

bool Decoder::MatrixStore(const ptx::Instruction& in) {
  const size_t count = MatrixCount(in);
  if (in.operands.size() != 2 || count == 0 || !in.Has(".m8n8") || !in.Has(".b16")) return false;
  auto operation = std::make_shared<RowsOperation>();
  operation->is_store = true;
  operation->transpose = in.Has(".trans");
  MemoryAccess access;
  access.space = MatrixSpace(in);
  if (!ReadAddress(in.operands[0], access, &operation->address.base)) return false;
  operation->address.space = access.space;
  operation->address.is_32bit = access.address_is_32bit;
  operation->address.offset = access.offset;
  if (!ReadRegisters(in.operands[1], 2, operation->registers) ||
      operation->registers.size() != count)
    return false;
  EmitConvergence();
  EmitExtended(std::move(operation));
  return true;
}

bool Decoder::MatrixMove(const ptx::Instruction& in) {
  if (in.operands.size() != 2 || !in.Has(".m8n8") || !in.Has(".trans") || !in.Has(".b16"))
    return false;
  auto operation = std::make_shared<TransposeOperation>();
  operation->source = Read(in.operands[1], Type::kB32);
  const Destination destination = Write(in.operands[0], Type::kB32);
  operation->destination = destination.ref;
  EmitConvergence();
  EmitExtended(std::move(operation));
  Finish(destination);
  return true;
}

bool Decoder::MatrixMultiply(const ptx::Instruction& in) {
  const MatrixShape shape = ShapeOf(in);
  const std::vector<MatrixType> types = MatrixTypes(in);
  const bool is_sparse = in.Has(".sp") || in.Has(".sp::ordered_metadata");
  if (types.size() != 4 || in.operands.size() != (is_sparse ? 6u : 4u)) return false;
  for (std::string_view modifier : in.modifiers) {
    if (modifier.starts_with(".kind") || modifier.starts_with(".block_scale")) return false;
  }
  auto operation = std::make_shared<MultiplyOperation>();
  MatrixProblem& problem = operation->problem;
  problem.d = types[0];
  problem.a = types[1];
  problem.b = types[2];
  problem.c = types[3];
  problem.rule = RuleOf(in, problem.a);
  problem.saturate = in.Has(".satfinite");
  if (!AreTypes(problem.a, problem.b, problem.c, problem.d)) return false;
  if (IsQuad(shape, problem.a)) {
    bool layouts[2] = {};
    size_t count = 0;
    for (std::string_view modifier : in.modifiers) {
      if ((modifier == ".row" || modifier == ".col") && count < 2) {
        layouts[count++] = modifier == ".row";
      }
    }
    if (count != 2 || is_sparse) return false;
    problem.rule = MatrixRule::kQuads;
    problem.rows = 32;
    problem.columns = 8;
    problem.depth = 4;
    operation->fragments = MakeQuadFragments(layouts[0], layouts[1], problem.c, problem.d);
  } else {
    const uint32_t stored = is_sparse ? shape.k / 2 : shape.k;
    if ((shape.m != 8 && shape.m != 16) || shape.n != 8 ||
        !IsDepth({shape.m, shape.n, stored}, problem.a) || (is_sparse && shape.m != 16) ||
        (is_sparse && problem.a == MatrixType::kF64))
      return false;
    problem.rows = shape.m;
    problem.columns = shape.n;
    problem.depth = stored;
    operation->fragments = MakeFragments(shape, problem.a, problem.b, problem.c, problem.d, stored);
    if (problem.rule == MatrixRule::kConverted) {
      const auto order = [stored](uint32_t k) { return SplitDepth(k, stored); };
      operation->fragments.a.Reorder(true, order);
      if (!is_sparse) operation->fragments.b.Reorder(false, order);
    }
  }
  const uint8_t shift = RegisterShiftOf(problem.a);
  if (!ReadRegisters(in.operands[1], shift, operation->a) ||
      !ReadRegisters(in.operands[2], shift, operation->b) ||
      !ReadRegisters(in.operands[3], shift, operation->c))
    return false;
  if (is_sparse) {
    const ptx::Operand& selector = in.operands[5];
    if (!selector.is_integer || selector.value < 0 || selector.value > 3) return false;
    operation->metadata.word = Read(in.operands[4], Type::kB32);
    operation->metadata.selector = static_cast<uint32_t>(selector.value);
  }
  std::vector<Destination> destinations;
  if (!WriteRegisters(in.operands[0], shift, operation->d, destinations)) return false;
  const Fragments& fragments = operation->fragments;
  if (operation->a.size() != fragments.a.registers() ||
      operation->b.size() != fragments.b.registers() ||
      operation->c.size() != fragments.c.registers() ||
      operation->d.size() != fragments.d.registers())
    return false;
  EmitConvergence();
  EmitExtended(std::move(operation));
  for (const Destination& destination : destinations) Finish(destination);
  return true;
}

namespace {

// wmma's fragments of f16 always have eight registers; where the matrix fills fewer, the rest are
// copies.
void PadHalves(Fragments& fragments) {
  for (Fragment* fragment : {&fragments.a, &fragments.b}) {
    if (fragment->type() == MatrixType::kF16) fragment->RepeatTo(8);
  }
}

// Narrow operands in shared memory are read like ldmatrix does; a store of two 32-bit elements that
// lie side by side is one access.
uint32_t FragmentAlignment(const FragmentCopyOperation& copy) {
  const uint32_t bits = BitsOf(copy.fragment.type());
  if (bits < 32) return copy.address.space == Space::kShared && !copy.is_store ? 16 : 4;
  const bool is_transposed = copy.fragment.rows() < copy.fragment.columns();
  const bool side_by_side = copy.row_major != is_transposed;
  return copy.is_store && side_by_side ? 8 : bits / 8;
}

bool IsWarpMatrixShape(MatrixShape shape, MatrixType a) {
  switch (a) {
    case MatrixType::kTf32:
      return shape.m == 16 && shape.n == 16 && shape.k == 8;
    case MatrixType::kF64:
      return shape.m == 8 && shape.n == 8 && shape.k == 4;
    case MatrixType::kS4:
    case MatrixType::kU4:
      return shape.m == 8 && shape.n == 8 && shape.k == 32;
    case MatrixType::kB1:
      return shape.m == 8 && shape.n == 8 && shape.k == 128;
    case MatrixType::kF16:
    case MatrixType::kBf16:
    case MatrixType::kS8:
    case MatrixType::kU8:
      return shape.k == 16 && ((shape.m == 16 && shape.n == 16) ||
                               (shape.m == 32 && shape.n == 8) || (shape.m == 8 && shape.n == 32));
    default:
      return false;
  }
}

}  // namespace

bool Decoder::WarpMatrix(const ptx::Instruction& in) {
  if (in.Has(".load")) return WarpMatrixCopy(in, true);
  if (in.Has(".store")) return WarpMatrixCopy(in, false);
  if (!in.Has(".mma") || in.operands.size() != 4) return false;
  const MatrixShape shape = ShapeOf(in);
  std::vector<MatrixType> types = MatrixTypes(in);
  if (types.size() == 2) {  // .dtype.ctype: f16 operands
    types = {types[0], MatrixType::kF16, MatrixType::kF16, types[1]};
  }
  if (types.size() != 4) return false;
  auto operation = std::make_shared<MultiplyOperation>();
  MatrixProblem& problem = operation->problem;
  problem.d = types[0];
  problem.a = types[1];
  problem.b = types[2];
  problem.c = types[3];
  if (!AreTypes(problem.a, problem.b, problem.c, problem.d) || !IsWarpMatrixShape(shape, problem.a))
    return false;
  problem.rule = problem.a == MatrixType::kTf32 ? MatrixRule::kFusedHalves : RuleOf(in, problem.a);
  problem.saturate = in.Has(".satfinite");
  problem.rows = shape.m;
  problem.columns = shape.n;
  problem.depth = shape.k;
  operation->fragments = MakeFragments(shape, problem.a, problem.b, problem.c, problem.d);
  Fragments padded = operation->fragments;
  PadHalves(padded);
  const uint8_t shift = RegisterShiftOf(problem.a);
  std::vector<Destination> destinations;
  if (!ReadRegisters(in.operands[1], shift, operation->a) ||
      !ReadRegisters(in.operands[2], shift, operation->b) ||
      !ReadRegisters(in.operands[3], shift, operation->c) ||
      !WriteRegisters(in.operands[0], shift, operation->d, destinations) ||
      operation->a.size() != padded.a.registers() || operation->b.size() != padded.b.registers() ||
      operation->c.size() != padded.c.registers() || operation->d.size() != padded.d.registers())
    return false;
  // The copies are not read.
  operation->a.resize(operation->fragments.a.registers());
  operation->b.resize(operation->fragments.b.registers());
  EmitConvergence();
  EmitExtended(std::move(operation));
  for (const Destination& destination : destinations) Finish(destination);
  return true;
}

bool Decoder::WarpMatrixCopy(const ptx::Instruction& in, bool is_load) {
  const MatrixShape shape = ShapeOf(in);
  const std::vector<MatrixType> types = MatrixTypes(in);
  if (types.size() != 1 || in.operands.size() < 2) return false;
  const bool is_a = in.Has(".a");
  const bool is_b = in.Has(".b");
  auto operation = std::make_shared<FragmentCopyOperation>();
  operation->is_store = !is_load;
  operation->row_major = in.Has(".row");
  if (!operation->row_major && !in.Has(".col")) return false;
  const MatrixType type = types[0];
  if (is_a || is_b) {
    if (!IsWarpMatrixShape(shape, type)) return false;
    Fragments fragments = MakeFragments(shape, type, type, MatrixType::kF32, MatrixType::kF32);
    PadHalves(fragments);
    operation->fragment = is_a ? fragments.a : fragments.b;
  } else {
    if (type != MatrixType::kF16 && type != MatrixType::kF32 && type != MatrixType::kS32 &&
        type != MatrixType::kF64)
      return false;
    if (shape.m % 8 != 0 || shape.n % 8 != 0 || shape.m == 0 || shape.m * shape.n > 256)
      return false;
    const MatrixType operand = type == MatrixType::kF64 ? type : MatrixType::kF16;
    operation->fragment = MakeFragments({shape.m, shape.n, 16}, operand, operand, type, type).c;
  }
  const ptx::Operand& memory = in.operands[is_load ? 1 : 0];
  const ptx::Operand& registers = in.operands[is_load ? 0 : 1];
  MemoryAccess access;
  access.space = MatrixSpace(in);
  if (!ReadAddress(memory, access, &operation->address.base)) return false;
  operation->address.space = access.space;
  operation->address.is_32bit = access.address_is_32bit;
  operation->address.offset = access.offset;
  operation->alignment_bytes = FragmentAlignment(*operation);
  const uint32_t packed =
      operation->row_major ? operation->fragment.columns() : operation->fragment.rows();
  operation->stride =
      in.operands.size() > 2 ? Read(in.operands[2], Type::kU32) : Constant(2, packed);
  const uint8_t shift = RegisterShiftOf(type);
  std::vector<Destination> destinations;
  if (is_load ? !WriteRegisters(registers, shift, operation->registers, destinations)
              : !ReadRegisters(registers, shift, operation->registers))
    return false;
  if (operation->registers.size() != operation->fragment.registers()) return false;
  EmitConvergence();
  EmitExtended(std::move(operation));
  for (const Destination& destination : destinations) Finish(destination);
  return true;
}

bool Decoder::Warpgroup(const ptx::Instruction& in) {
  if (in.Has(".fence")) return Nothing(in);
  if (in.Has(".commit_group")) {
    EmitConvergence();
    EmitExtended(std::make_shared<WarpgroupCommit>());
    return true;
  }
  if (in.Has(".wait_group")) {
    if (in.operands.size() != 1 || !in.operands[0].is_integer || in.operands[0].value < 0)
      return false;
    EmitConvergence();
    EmitExtended(std::make_shared<WarpgroupWait>(static_cast<uint64_t>(in.operands[0].value)));
    return true;
  }
  const MatrixShape shape = ShapeOf(in);
  const std::vector<MatrixType> types = MatrixTypes(in);
  const bool is_sparse = in.Has(".sp");
  size_t next = is_sparse ? 5 : 3;
  if (!in.Has(".mma_async") || types.size() != 3 || in.operands.size() <= next || shape.m != 64 ||
      shape.n % 8 != 0 || shape.n == 0 || shape.n > 256)
    return false;
  auto operation = std::make_shared<WarpgroupMultiply>();
  MatrixProblem& problem = operation->problem;
  problem.d = problem.c = types[0];
  problem.a = types[1];
  problem.b = types[2];
  const uint32_t stored = is_sparse ? shape.k / 2 : shape.k;
  if (!AreTypes(problem.a, problem.b, problem.c, problem.d) || problem.a == MatrixType::kF64 ||
      BitsOf(problem.a) == 4 || stored * BitsOf(problem.a) != 256)
    return false;
  problem.rule = RuleOf(in, problem.a);
  if (problem.rule == MatrixRule::kConverted) problem.rule = MatrixRule::kFusedShort;
  problem.saturate = in.Has(".satfinite");
  problem.rows = 16;
  problem.columns = shape.n;
  problem.depth = stored;
  operation->b_depth = shape.k;
  operation->fragments =
      MakeFragments({16, shape.n, shape.k}, problem.a, problem.b, problem.c, problem.d, stored);

  // Accumulators are read and written in place.
  if (!ReadRegisters(in.operands[0], 2, operation->d) ||
      operation->d.size() != operation->fragments.d.registers())
    return false;
  for (const ptx::Operand& element : Elements(in.operands[0])) {
    if (!element.IsRegister() || RegisterShift(element.reg) != 2) return false;
  }
  if (in.operands[1].kind == Kind::kVector) {
    if (!ReadRegisters(in.operands[1], 2, operation->a) ||
        operation->a.size() != operation->fragments.a.registers())
      return false;
  } else {
    operation->a_descriptor = Read(in.operands[1], Type::kB64);
  }
  operation->b_descriptor = Read(in.operands[2], Type::kB64);
  if (is_sparse) {
    const ptx::Operand& selector = in.operands[4];
    if (!selector.is_integer || selector.value < 0 || selector.value > 3) return false;
    operation->metadata.word = Read(in.operands[3], Type::kB32);
    operation->metadata.selector = static_cast<uint32_t>(selector.value);
  }
  operation->scale_d = ReadPredicate(in.operands[next++]);
  std::vector<int64_t> immediates;
  for (; next < in.operands.size(); ++next) {
    if (!in.operands[next].is_integer) return false;
    immediates.push_back(in.operands[next].value);
  }
  if (IsNarrowFloat(problem.a)) {
    // imm-scale-a, imm-scale-b, then imm-trans-a (a in shared memory), imm-trans-b of 16-bit types.
    const size_t transposes = BitsOf(problem.a) != 16 ? 0 : operation->a.empty() ? 2 : 1;
    if (immediates.size() != 2 + transposes) return false;
    problem.negate_a = immediates[0] < 0;
    problem.negate_b = immediates[1] < 0;
    if (transposes != 0) operation->b_k_major = immediates.back() == 0;
    if (transposes == 2) operation->a_k_major = immediates[2] == 0;
  } else if (!immediates.empty()) {
    return false;
  }
  EmitConvergence();
  EmitExtended(std::move(operation));
  return true;
}

}  // namespace ops_debug::emulator
