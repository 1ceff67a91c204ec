// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pointer authentication keys (Arm ARM D8.10). EL2 does not use pointer authentication, so they are a guest's.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::cpu::regs;

/// Defines the keys, in halves.
macro_rules! keys {
    ($($low:ident $high:ident)*) => {
        /// A vCPU's keys, while they are not in a CPU. The default is what they are reset to.
        #[derive(Debug, Default)]
        #[allow(non_snake_case, reason = "the architecture's names")]
        #[repr(C)]
        pub struct Keys { $($low: u64, $high: u64,)* }

        impl Keys {
            /// Stores the registers.
            pub fn save(&mut self) {
                $((self.$low, self.$high) = (regs::$low.read(), regs::$high.read());)*
            }

            /// Loads the registers.
            ///
            /// # Safety
            /// They are those of the vCPU that is to use them.
            pub unsafe fn load(&self) {
                // SAFETY: the caller's promise; EL2 has pointer authentication disabled.
                unsafe {
                    $(
                        let (low, high) = (self.$low, self.$high);
                        regs::$low.write(low);
                        regs::$high.write(high);
                    )*
                }
            }
        }
    };
}

keys! {
    APIAKeyLo_EL1 APIAKeyHi_EL1 APIBKeyLo_EL1 APIBKeyHi_EL1 APDAKeyLo_EL1 APDAKeyHi_EL1 APDBKeyLo_EL1 APDBKeyHi_EL1
    APGAKeyLo_EL1 APGAKeyHi_EL1
}

/// Whether a guest of this machine has ever used its keys. They come with it to other CPUs without a further fault.
static USED: AtomicBool = AtomicBool::new(false);

/// Notes that a guest uses its keys: from now on the registers of a CPU may have them. What brings a vCPU to another CPU orders this
/// before it.
pub fn note_use() {
    USED.store(true, Ordering::Relaxed);
}

/// Says whether the registers of keys may have a guest's.
#[inline(always)] // A load, of each entry to a service.
pub fn is_used() -> bool {
    USED.load(Ordering::Relaxed)
}
