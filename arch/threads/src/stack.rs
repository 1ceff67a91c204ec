// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The stacks of threads.

use core::sync::atomic;

use crate::Thread;

#[cfg(all(target_os = "none", not(target_arch = "powerpc64")))]
unsafe extern "C" {
    /// The architecture's: what a function may change is free; the rest it leaves on the stack in use, whose pointer it stores in
    /// `from`, and takes from the stack at `to`.
    fn turnstile_switch_stack(from: *mut u64, to: u64);
}

/// Goes on on the stack of `to`, and leaves the stack pointer of the one in use in `from`. Nothing happens on the host.
///
/// # Safety
/// The stack was left by this function, or laid by [`Thread::lay`] as the architecture's assembly expects it, and nobody uses it.
#[cfg(not(target_arch = "powerpc64"))] // There the change of stacks takes the frame, too.
#[inline] // Of each switch.
pub unsafe fn switch(from: &atomic::AtomicU64, to: &Thread) {
    let to = to.sp.load(atomic::Ordering::Relaxed);
    #[cfg(target_os = "none")]
    // SAFETY: the caller's promise.
    unsafe {
        turnstile_switch_stack(from.as_ptr(), to);
    }
    #[cfg(not(target_os = "none"))]
    let _ = (from, to);
}

impl Thread {
    /// Makes the stack of a thread that has never run: it begins with what is `saved` below `top`.
    ///
    /// # Safety
    /// There is room below `top`, which nobody uses yet.
    pub unsafe fn lay<const N: usize>(&self, top: u64, saved: [u64; N]) {
        let sp = top - size_of_val(&saved) as u64;
        // SAFETY: the caller's promise.
        unsafe { (sp as *mut [u64; N]).write(saved) };
        self.sp.store(sp, atomic::Ordering::Relaxed);
    }
}
