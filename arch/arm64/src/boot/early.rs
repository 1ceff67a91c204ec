// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `boot.S` asks before the MMU is on: which mode this CPU is to have, and what to say where it cannot be used.

use turnstile_arch_common::blob;
use turnstile_arch_common::console::Port;
use turnstile_firmware::tree;

use crate::board::discover;
use crate::board::uart::Uart;
use crate::cpu::mode::{self, Capabilities, Refusal, Wanted};
use crate::cpu::{self, regs};

/// Returns the blob at `address`.
pub(super) fn device_tree(address: u64) -> Option<&'static [u8]> {
    // SAFETY: the boot protocol passes the address in X0, readable with the boot tables or with the MMU off.
    unsafe { blob::device_tree(address) }
}

/// Returns the blob at `address` while the MMU is off: what the boot loader wrote may still be in the caches, which
/// reads go past then.
fn device_tree_from_memory(address: u64) -> Option<&'static [u8]> {
    cpu::clean_to_poc(address, blob::HEADER);
    let blob = device_tree(address)?;
    cpu::clean_to_poc(address, blob.len() as u64);
    Some(blob)
}

/// Numbers of refusals, for `boot.S`; 1 is that the exception level is not 2.
const NO_VHE: u64 = 2;
const ONLY_VHE: u64 = 3;
const ABLATION_NEEDS_VHE: u64 = 4;

/// Says why this CPU cannot be used. The MMU is off and the exception level may be 1.
#[unsafe(no_mangle)]
extern "C" fn turnstile_refuse(dtb: u64, reason: u64) {
    let Some(fdt) = device_tree(dtb).and_then(|blob| discover::parse(blob).ok()) else { return };
    let Some(node) = discover::uart(fdt) else { return };
    // SAFETY: the MMU is off, so the port's registers are reachable at their physical address.
    let uart = unsafe { Uart::new(node.kind, node.registers.base) };
    uart.start(node.clock);
    for byte in refusal_text(reason).iter().flat_map(|line| line.bytes()) {
        uart.put(byte);
    }
}

fn refusal_text(reason: u64) -> &'static [&'static str] {
    match reason {
        1 => &[
            "turnstile: started at EL1, but a hypervisor needs EL2.\r\n",
            "Start it as a boot loader starts Linux with virtualization: under QEMU, -machine virt,virtualization=on.\r\n",
        ],
        NO_VHE => &[
            "turnstile: this CPU has no Virtualization Host Extensions (Armv8.1 FEAT_VHE), which mode=vhe asks for.\r\n",
            "Leave mode=vhe out, or use a newer CPU: under QEMU, -cpu max or -cpu neoverse-n1.\r\n",
        ],
        ONLY_VHE => &[
            "turnstile: this CPU cannot do without its Virtualization Host Extensions, as mode=nvhe asks for.\r\n",
            "Leave mode=nvhe out.\r\n",
        ],
        _ => &[
            "turnstile: an image for ablation needs a CPU with Virtualization Host Extensions, and uses them.\r\n",
            "Leave mode=nvhe out, and use a newer CPU: under QEMU, -cpu max or -cpu neoverse-n1.\r\n",
        ],
    }
}

/// Chooses the mode by the CPU and the command line in the device tree. Returns zero, or why it cannot be had, for
/// [`turnstile_refuse`]. EL2, with the MMU off: so the regime is entered once, and right.
#[unsafe(no_mangle)]
extern "C" fn turnstile_choose_mode(dtb: u64) -> u64 {
    let fdt = device_tree_from_memory(dtb).and_then(|blob| discover::parse(blob).ok());
    let wanted = Wanted::from_line(fdt.map_or("", tree::bootargs));
    let cpu = Capabilities::new(regs::ID_AA64MMFR1_EL1.read(), regs::ID_AA64MMFR4_EL1.read());
    match mode::choose(wanted, cpu) {
        Ok(vhe) => {
            // SAFETY: the boot code calls this once, before anything looks at the mode.
            unsafe { mode::set(vhe) };
            0
        }
        Err(Refusal::NoVhe) => NO_VHE,
        Err(Refusal::OnlyVhe) => ONLY_VHE,
        Err(Refusal::AblationNeedsVhe) => ABLATION_NEEDS_VHE,
    }
}
