// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each technique saves, spelled out.

use core::hint::black_box;
use core::sync::atomic::Ordering;

use turnstile_papr::hcall::Hcall;

use crate::cpu;
use crate::cpu::regs::{DEC, HDEC, LPCR, LPIDR, MMCR0, PIDR};
use crate::state::demand::with_transactions;
use crate::state::registers::FROZEN;
use crate::state::saved::Saved;
use crate::time;
use crate::vcpu::{interrupts, switch};
use crate::vm::{GUEST_LPCR, Vcpu};

/// Looks for the handler of a call in a list.
pub(super) fn search(saved: &mut Saved) {
    for call in Hcall::ALL {
        if black_box(call.number()) == Some(saved.number) {
            break;
        }
    }
}

/// Keeps both decrementers as times, and sets them again.
pub(super) fn read_time(_: &mut Saved) {
    let (guest, host) = (DEC.read(), HDEC.read());
    let expires = black_box(time::ticks().wrapping_add(guest as i32 as u64));
    let rings = black_box(time::ticks().wrapping_add(host as i32 as u64));
    // SAFETY: as they were, but for the time that has passed.
    unsafe {
        HDEC.write(rings.wrapping_sub(time::ticks()));
        DEC.write(expires.wrapping_sub(time::ticks()));
    }
}

/// Says that the vCPU has left its guest, and that it is back.
pub(super) fn announce(saved: &mut Saved) {
    saved.inside.fetch_and(0, Ordering::SeqCst);
    saved.inside.fetch_or(1, Ordering::SeqCst);
}

/// Stores and loads the guest's special-purpose registers.
pub(super) fn switch_registers(saved: &mut Saved) {
    saved.common.save();
    // SAFETY: what was stored is loaded.
    unsafe { saved.common.load(None) };
}

/// The same of the performance monitor, which counts nothing meanwhile.
pub(super) fn switch_monitor(saved: &mut Saved) {
    saved.monitor.save();
    // SAFETY: what was stored is loaded.
    unsafe {
        MMCR0.write(FROZEN);
        saved.monitor.load(None);
    }
}

/// The same of transactions.
pub(super) fn switch_transactions(saved: &mut Saved) {
    with_transactions(|| {
        saved.transactions.save();
        // SAFETY: what was stored is loaded.
        unsafe { saved.transactions.load(None) };
    });
}

/// The same of event-based branches.
pub(super) fn switch_branches(saved: &mut Saved) {
    saved.branches.save();
    // SAFETY: what was stored is loaded.
    unsafe { saved.branches.load(None) };
}

/// The same of FP, vector and VSX registers.
pub(super) fn switch_vectors(saved: &mut Saved) {
    saved.vectors.save();
    // SAFETY: what was stored is loaded.
    unsafe { saved.vectors.load() };
}

/// Waits for invalidations.
pub(super) fn wait_for_invalidations(_: &mut Saved) {
    switch::finish_invalidations();
}

/// Leaves the partition, and enters it again.
pub(super) fn switch_partition(_: &mut Saved) {
    let (lpidr, lpcr, pidr) = (LPIDR.read(), LPCR.read(), PIDR.read());
    for (lpidr, lpcr, pidr) in [(0, GUEST_LPCR, 0), (lpidr, lpcr, pidr)] {
        cpu::isync();
        // SAFETY: the hypervisor is in real mode, and the guest's values are back in the end.
        unsafe {
            LPIDR.write(lpidr);
            cpu::isync();
            LPCR.write(lpcr);
            cpu::isync();
            PIDR.write(pidr);
        }
        cpu::isync();
    }
}

/// Looks for what others have posted, whether or not the attention word says so.
pub(super) fn look_through(vcpu: &'static Vcpu, saved: &mut Saved) {
    let _guard = saved.lock.lock();
    interrupts::drain(vcpu);
    black_box(vcpu.vm.processors.is_on(vcpu.index));
    black_box(vcpu.vm.lifecycle.phase());
}
