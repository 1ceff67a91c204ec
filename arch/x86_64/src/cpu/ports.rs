// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Device registers of the machine in I/O space (APM vol. 1, 3.8). On the host, where there are none, they read as ones.

macro_rules! accesses {
    ($read:ident, $write:ident, $type:ty, $register:tt) => {
        /// Reads a port.
        ///
        /// # Safety
        /// The port belongs to a device that the hypervisor drives; reading it has only the effect that the caller means.
        #[inline]
        pub unsafe fn $read(port: u16) -> $type {
            #[cfg(target_os = "none")]
            {
                let value: $type;
                // SAFETY: the caller's promise; devices on ports that are read this way do not write to memory.
                unsafe {
                    core::arch::asm!(
                        concat!("in ", $register, ", dx"), in("dx") port, out($register) value,
                        options(nomem, nostack, preserves_flags)
                    );
                }
                value
            }
            #[cfg(not(target_os = "none"))]
            {
                let _ = port;
                <$type>::MAX
            }
        }

        /// Writes a port.
        ///
        /// # Safety
        /// The port belongs to a device that the hypervisor drives, and the device keeps its hands off the hypervisor's
        /// memory.
        #[inline]
        pub unsafe fn $write(port: u16, value: $type) {
            #[cfg(target_os = "none")]
            // SAFETY: the caller's promise. The asm is not `nomem`: stores before it are done before it.
            unsafe {
                core::arch::asm!(
                    concat!("out dx, ", $register), in("dx") port, in($register) value,
                    options(nostack, preserves_flags)
                );
            }
            #[cfg(not(target_os = "none"))]
            let _ = (port, value);
        }
    };
}

accesses!(read8, write8, u8, "al");
accesses!(read16, write16, u16, "ax");
accesses!(read32, write32, u32, "eax");
