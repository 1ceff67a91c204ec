// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The plugin as QEMU calls it.
//!
//! Until a guest is seen nothing is counted: blocks are only looked at when they are translated. The first block of a
//! guest *arms* the meter: QEMU is asked to forget all translations, and from then on each new one gets a callback
//! that is called whenever it is executed, and one for each instruction that may access a device.
//!
//! Callbacks on execution are unconditional: with several CPUs on one TCG thread QEMU 10.0 gives conditional ones
//! and its per-CPU counters the wrong CPU, and the machine breaks. It tells the wrong CPU to the others, too, so
//! its number is used only where each CPU has a thread of its own.

mod memory;

use std::cell::{Cell, UnsafeCell};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use crate::block::{Code, Raw};
use crate::ffi::{self, Registers};
use crate::isa::Isa;
use crate::machine::{self, Side};
use crate::options::Options;
use crate::output;
use crate::visits::{Details, GuestBlock, Meter, Resume};

/// The version of the plugin interface that this is written for.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "QEMU looks for this name")]
pub static qemu_plugin_version: c_int = 4;

/// What is known from the start.
struct Setting {
    options: Options,
    target: String,
    isa: Option<Isa>,
    cpus: usize,
    code: Mutex<Code>,
}

/// What one thread of QEMU counts.
struct Slot(UnsafeCell<(Meter, Registers)>);

// SAFETY: a slot is touched only by the thread that runs its CPU, or by the one thread that runs all CPUs; see `with`.
// The callback at QEMU's end touches them after `DONE` has kept the others out.
unsafe impl Sync for Slot {}
// SAFETY: nothing in it belongs to the thread that made it.
unsafe impl Send for Slot {}

static SETTING: OnceLock<Setting> = OnceLock::new();
static SLOTS: OnceLock<Box<[Slot]>> = OnceLock::new();
static ARMING: AtomicBool = AtomicBool::new(false);
/// Set when QEMU ends: nothing is counted any more.
static DONE: AtomicBool = AtomicBool::new(false);
/// The thread of the first CPU, and whether another CPU has another one.
static THREAD: OnceLock<ThreadId> = OnceLock::new();
static PARALLEL: AtomicBool = AtomicBool::new(false);
/// With `total=on`: all instructions.
static TOTAL: AtomicU64 = AtomicU64::new(0);
/// With `boot=`: the instructions from there to the first guest, and whether that place was reached.
static BOOT: AtomicU64 = AtomicU64::new(0);
static BEGUN: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The CPU that this thread runs, if each has its own.
    static CPU: Cell<c_uint> = const { Cell::new(0) };
}

extern "C" fn cpu_appeared(_id: u64, cpu: c_uint) {
    ffi::find_registers();
    CPU.set(cpu);
    let thread = std::thread::current().id();
    if *THREAD.get_or_init(|| thread) != thread {
        PARALLEL.store(true, Ordering::Relaxed);
    }
}

/// Asks whose code a block is that is about to be executed.
fn side(setting: &Setting, isa: Isa, block: *const ffi::Block) -> Side {
    // SAFETY: `block` is the block being translated, which has a first instruction.
    let (start, host) = unsafe {
        let first = ffi::qemu_plugin_tb_get_insn(block, 0);
        (ffi::qemu_plugin_tb_vaddr(block), ffi::qemu_plugin_insn_haddr(first) as u64)
    };
    let options = &setting.options;
    let mut side = machine::side(isa, &mut Registers::new(), &options.guest, options.host, start);
    if isa == Isa::X86 && side.guest {
        side.guest = false;
        with(CPU.get(), |meter, registers| side.guest = meter.in_guest_mode(start, host, registers));
    }
    side
}

/// x86: whether a block ends in VMRUN, which no instruction follows in a block.
fn ends_in_vmrun(block: *const ffi::Block) -> bool {
    // SAFETY: `block` is the block being translated; the buffer has the length that is named.
    unsafe {
        let last = ffi::qemu_plugin_tb_get_insn(block, ffi::qemu_plugin_tb_n_insns(block) - 1);
        let mut bytes = [0; MAX_INSTRUCTION];
        let length = ffi::qemu_plugin_insn_data(last, bytes.as_mut_ptr().cast(), bytes.len());
        bytes[..length].ends_with(&VMRUN)
    }
}

/// The last bytes of VMRUN.
const VMRUN: [u8; 3] = [0x0f, 0x01, 0xd8];
/// VMMCALL: outside guests, services alone have it.
const VMMCALL: [u8; 3] = [0x0f, 0x01, 0xd9];
/// The longest instruction of x86.
const MAX_INSTRUCTION: usize = 15;

/// A block was translated, and no guest has been seen yet.
extern "C" fn translated_unarmed(id: u64, block: *mut ffi::Block) {
    let Some((setting, isa)) = SETTING.get().and_then(|setting| Some((setting, setting.isa?))) else {
        return;
    };
    // On x86 the first VMRUN tells that there will be a guest: QEMU forgets the translations before it executes it.
    let seen = if isa == Isa::X86 { ends_in_vmrun(block) } else { side(setting, isa, block).guest };
    if let Some(begin) = setting.options.boot {
        count_boot(block, begin, seen && isa == Isa::X86);
    }
    if seen && !ARMING.swap(true, Ordering::Relaxed) {
        // SAFETY: `id` is ours.
        unsafe { ffi::qemu_plugin_reset(id, armed) };
    }
}

/// Counts what is executed of a block before there is a guest. On x86 the last one is known when it is translated, which is too late
/// for a callback.
fn count_boot(block: *mut ffi::Block, begin: u64, is_last: bool) {
    // SAFETY: `block` is the block being translated. The pointer passed on is a number, never followed.
    unsafe {
        let count = ffi::qemu_plugin_tb_n_insns(block);
        if is_last && BEGUN.load(Ordering::Relaxed) {
            BOOT.fetch_add(count as u64, Ordering::Relaxed);
            return;
        }
        let first = ffi::qemu_plugin_tb_vaddr(block) == begin;
        let callback = if first { executed_first } else { executed_in_boot };
        ffi::qemu_plugin_register_vcpu_tb_exec_cb(block, callback, ffi::NO_REGISTERS, count as *mut c_void);
    }
}

extern "C" fn executed_first(cpu: c_uint, count: *mut c_void) {
    BEGUN.store(true, Ordering::Relaxed);
    executed_in_boot(cpu, count);
}

extern "C" fn executed_in_boot(_cpu: c_uint, count: *mut c_void) {
    if BEGUN.load(Ordering::Relaxed) {
        BOOT.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// QEMU has forgotten all translations, and all callbacks.
extern "C" fn armed(id: u64) {
    if let Some((setting, isa)) = SETTING.get().and_then(|setting| Some((setting, setting.isa?))) {
        let parallel = PARALLEL.load(Ordering::Relaxed);
        let slots = if parallel { setting.cpus } else { 1 };
        let several = setting.cpus > 1 && !parallel;
        SLOTS.get_or_init(|| {
            let Options { trace, footprint, .. } = setting.options;
            let meter = || Meter::new(isa, several, Details { trace, footprint });
            (0..slots).map(|_| Slot(UnsafeCell::new((meter(), Registers::new())))).collect()
        });
    }
    // SAFETY: QEMU calls this where callbacks may be registered.
    unsafe {
        ffi::qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
        ffi::qemu_plugin_register_atexit_cb(id, finished, std::ptr::null_mut());
    }
}

/// A block was translated.
extern "C" fn translated(_id: u64, block: *mut ffi::Block) {
    let Some((setting, isa)) = SETTING.get().and_then(|setting| Some((setting, setting.isa?))) else {
        return;
    };
    let side = side(setting, isa, block);
    // SAFETY: `block` is the block being translated, and has so many instructions. What is passed on as pointers is
    // numbers, never followed, or a block that lives for ever.
    unsafe {
        let count = ffi::qemu_plugin_tb_n_insns(block);
        if side.guest {
            let packed = GuestBlock::new(ffi::qemu_plugin_tb_vaddr(block), count).0;
            ffi::qemu_plugin_register_vcpu_tb_exec_cb(
                block,
                in_guest,
                ffi::READ_REGISTERS,
                packed as *mut c_void,
            );
            return;
        }
        let mut raw: Vec<Raw> =
            (0..count).map(|index| raw(ffi::qemu_plugin_tb_get_insn(block, index), setting)).collect();
        // A service's VMMCALL is not executed, but leaves it; QEMU goes on to translate.
        if isa == Isa::X86
            && let Some(left) = raw.iter().position(|raw| raw.bytes == VMMCALL)
        {
            raw.truncate(left);
        }
        let count = raw.len();
        if count == 0 {
            return;
        }
        let mut code = setting.code.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, watched) = code.block(side.level, side.little, raw);
        drop(code);
        let data = std::ptr::from_ref(known).cast_mut().cast();
        ffi::qemu_plugin_register_vcpu_tb_exec_cb(block, outside, ffi::READ_REGISTERS, data);
        if isa == Isa::X86 && known.returns {
            let last = ffi::qemu_plugin_tb_get_insn(block, count - 1);
            let resume = std::ptr::from_ref(resume(last));
            ffi::qemu_plugin_register_vcpu_insn_exec_cb(
                last,
                vmrun,
                ffi::READ_REGISTERS,
                resume.cast_mut().cast(),
            );
        }
        for (index, _) in watched.iter().enumerate().filter(|&(_, &watched)| watched) {
            let insn = ffi::qemu_plugin_tb_get_insn(block, index);
            ffi::qemu_plugin_register_vcpu_mem_cb(
                insn,
                memory::accessed,
                ffi::READ_REGISTERS,
                ffi::READS_AND_WRITES,
                ffi::qemu_plugin_insn_vaddr(insn) as *mut c_void,
            );
        }
        for index in (0..count).filter(|_| setting.options.footprint) {
            ffi::qemu_plugin_register_vcpu_mem_cb(
                ffi::qemu_plugin_tb_get_insn(block, index),
                memory::touched,
                ffi::READ_REGISTERS,
                ffi::READS_AND_WRITES,
                std::ptr::null_mut(),
            );
        }
    }
}

/// Where the host goes on behind a VMRUN. It lives for ever: there are few of them.
///
/// # Safety
/// `insn` must belong to the block that is being translated.
unsafe fn resume(insn: *const ffi::Insn) -> &'static Resume {
    const PAGE: u64 = 1 << 12;
    // SAFETY: by the contract.
    let (pc, host) = unsafe {
        let size = ffi::qemu_plugin_insn_size(insn) as u64;
        (ffi::qemu_plugin_insn_vaddr(insn) + size, ffi::qemu_plugin_insn_haddr(insn) as u64 + size)
    };
    Box::leak(Box::new(Resume { pc, host: (!pc.is_multiple_of(PAGE)).then_some(host) }))
}

/// Copies what QEMU knows of an instruction.
///
/// # Safety
/// `insn` must belong to the block that is being translated.
unsafe fn raw(insn: *mut ffi::Insn, setting: &Setting) -> Raw {
    // SAFETY: by the contract; the buffer has the length that is named.
    unsafe {
        let mut bytes = vec![0; ffi::qemu_plugin_insn_size(insn)];
        let copied = ffi::qemu_plugin_insn_data(insn, bytes.as_mut_ptr().cast(), bytes.len());
        bytes.truncate(copied);
        let text = if setting.options.trace { ffi::text(insn) } else { None };
        Raw { pc: ffi::qemu_plugin_insn_vaddr(insn), bytes, text }
    }
}

/// Does something with what the running thread counts.
fn with(cpu: c_uint, work: impl FnOnce(&mut Meter, &mut Registers)) {
    let index = if PARALLEL.load(Ordering::Relaxed) { cpu as usize } else { 0 };
    let Some(slot) = SLOTS.get().and_then(|slots| slots.get(index)) else { return };
    if DONE.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: if each CPU has a thread of its own, `cpu` is right, and only this thread has this index. Otherwise
    // there is only one thread. Callbacks do not nest.
    let (meter, registers) = unsafe { &mut *slot.0.get() };
    work(meter, registers);
}

extern "C" fn in_guest(cpu: c_uint, data: *mut c_void) {
    with(cpu, |meter, registers| meter.guest(GuestBlock(data as u64), registers));
}

extern "C" fn outside(cpu: c_uint, data: *mut c_void) {
    // SAFETY: `translated` passed a reference to a block that lives for ever.
    let block = unsafe { &*data.cast_const().cast() };
    with(cpu, |meter, registers| meter.outside(block, registers));
}

extern "C" fn vmrun(cpu: c_uint, data: *mut c_void) {
    // SAFETY: `translated` passed a reference that lives for ever.
    let resume = unsafe { *data.cast_const().cast() };
    with(cpu, |meter, registers| meter.vmrun(resume, registers));
}

/// With `total=on`: a block was translated.
extern "C" fn translated_for_total(_id: u64, block: *mut ffi::Block) {
    // SAFETY: `block` is the block being translated. The pointer passed on is a number, never followed.
    unsafe {
        let count = ffi::qemu_plugin_tb_n_insns(block) as *mut c_void;
        ffi::qemu_plugin_register_vcpu_tb_exec_cb(block, executed, ffi::NO_REGISTERS, count);
    }
}

extern "C" fn executed(_cpu: c_uint, count: *mut c_void) {
    TOTAL.fetch_add(count as u64, Ordering::Relaxed);
}

extern "C" fn finished(_id: u64, _data: *mut c_void) {
    let Some(setting) = SETTING.get() else { return };
    DONE.store(true, Ordering::SeqCst);
    if PARALLEL.load(Ordering::Relaxed) {
        // QEMU usually has stopped the CPUs by now. If a CPU itself ends QEMU, the others may be in the middle of a
        // callback: each takes far less than this.
        std::thread::sleep(Duration::from_millis(20));
    }
    let text = if setting.options.total {
        output::total(&setting.target, TOTAL.load(Ordering::Relaxed))
    } else {
        let slots = SLOTS.get().map(|slots| &slots[..]).unwrap_or_default();
        // SAFETY: `DONE` keeps everybody else out.
        let meters: Vec<&Meter> = slots.iter().map(|slot| unsafe { &(*slot.0.get()).0 }).collect();
        let code = setting.code.lock().unwrap_or_else(PoisonError::into_inner);
        output::visits(&setting.target, &code, &meters, BOOT.load(Ordering::Relaxed))
    };
    if let Err(error) = std::fs::write(&setting.options.out, text) {
        eprintln!("turnstile-meter: {}: {error}", setting.options.out);
    }
}

/// Takes the arguments; the error is for the user.
fn setting(arguments: &[String], target: String, cpus: usize) -> Result<Setting, String> {
    let options = Options::parse(arguments.iter().map(String::as_str))?;
    let isa = Isa::of(&target);
    if isa.is_none() && !options.total {
        return Err(format!("the architecture {target} is not known; only total=on works with it"));
    }
    if options.host.is_some() && isa != Some(Isa::Arm64) {
        return Err(format!("{target} has no VMIDs; host= works with aarch64 alone"));
    }
    // An unwritable file is better known before the run than after it.
    std::fs::write(&options.out, "").map_err(|error| format!("{}: {error}", options.out))?;
    let code = Code::new(isa.unwrap_or(Isa::Arm64)).copying(options.copy.clone().unwrap_or_default());
    let code = Mutex::new(code);
    Ok(Setting { options, target, isa, cpus, code })
}

/// Called by QEMU when it loads the plugin. Returns 0, or -1 if the arguments are wrong.
///
/// # Safety
/// `info` must point to QEMU's description of the machine, and `argv` hold `argc` C strings, as QEMU's plugin
/// interface says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    info: *const ffi::Info,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: by the contract.
    let (arguments, target, system, cpus) = unsafe {
        let text = |text: *const c_char| CStr::from_ptr(text).to_string_lossy().into_owned();
        let count = usize::try_from(argc).unwrap_or(0);
        let arguments: Vec<String> = (0..count).map(|index| text(*argv.add(index))).collect();
        (arguments, text((*info).target_name), (*info).system_emulation, (*info).max_vcpus)
    };
    let made = match system {
        true => setting(&arguments, target, usize::try_from(cpus).unwrap_or(1)),
        false => Err("it measures whole machines, not programs".to_owned()),
    };
    let total = match made.map(|setting| (setting.options.total, SETTING.set(setting))) {
        Ok((total, Ok(()))) => total,
        Ok((_, Err(_))) => {
            eprintln!("turnstile-meter: it was loaded twice");
            return -1;
        }
        Err(error) => {
            eprintln!("turnstile-meter: {error}");
            return -1;
        }
    };
    // SAFETY: called while QEMU installs the plugin, when these are allowed.
    unsafe {
        if total {
            ffi::qemu_plugin_register_vcpu_tb_trans_cb(id, translated_for_total);
        } else {
            ffi::qemu_plugin_register_vcpu_init_cb(id, cpu_appeared);
            ffi::qemu_plugin_register_vcpu_tb_trans_cb(id, translated_unarmed);
        }
        ffi::qemu_plugin_register_atexit_cb(id, finished, std::ptr::null_mut());
    }
    0
}
