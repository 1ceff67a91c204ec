// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which of the guest's registers a light handler stores.
//!
//! A light handler returns with every register as it was but RAX, RCX and RDI, which the run loop has stored, and the flags. The
//! shortest handlers need no others. Those that do are behind a function that [`keep`] makes: it stores the registers that its
//! handler may change, calls it, and loads them. Calls from such a handler that would change yet others, and are rare, are behind
//! one of [`keep_rest`]. The compiler knows nothing of this: `./x test` follows the built code from every light handler, and fails
//! if one returns with another register changed (`suite/src/registers_x86.rs`).
//!
//! On the host the registers are in the frame already.

/// Makes the function `$name`, generic over [`Next`](crate::vcpu::next::Next), that calls `$handler` with the named registers stored
/// in the slots of the frame whose offsets follow; and RSI, on the stack alone, which aligns it.
///
/// It is called by the run loop or jumped to by a light handler that the loop has called: the frame lies above the return address.
macro_rules! keep {
    ($(#[$doc:meta])* $name:ident => $handler:ident: $($register:ident $slot:literal),*) => {
        $(#[$doc])*
        #[cfg(target_os = "none")]
        #[unsafe(naked)]
        #[unsafe(link_section = ".text.hot")]
        pub(super) extern "C" fn $name<N: $crate::vcpu::next::Next>(
            frame: &mut $crate::vcpu::frame::Frame,
            rsi: u64,
            rdx: u64,
        ) -> u32 {
            core::arch::naked_asm!(
                "push rsi",
                $(concat!("mov [rsp + 16 + ", $slot, "], ", stringify!($register)),)*
                "call {handler}",
                "pop rsi",
                $(concat!("mov ", stringify!($register), ", [rsp + 8 + ", $slot, "]"),)*
                "ret",
                handler = sym $handler::<N>,
            )
        }

        $(#[$doc])*
        #[cfg(not(target_os = "none"))]
        pub(super) extern "C" fn $name<N: $crate::vcpu::next::Next>(
            frame: &mut $crate::vcpu::frame::Frame,
            rsi: u64,
            rdx: u64,
        ) -> u32 {
            $handler::<N>(frame, rsi, rdx)
        }
    };
}

/// Makes the function `$name`, generic over [`Next`](crate::vcpu::next::Next), that calls `$handler` with R8 to R11 stored: for a
/// handler that [`keep`] has called, with RSI and RDX kept. It takes the frame, and what the handler wants in RSI and RDX.
macro_rules! keep_rest {
    ($(#[$doc:meta])* $name:ident => $handler:ident) => {
        $(#[$doc])*
        #[cfg(target_os = "none")]
        #[unsafe(naked)]
        #[unsafe(link_section = ".text.hot")]
        extern "C" fn $name<N: $crate::vcpu::next::Next>(
            frame: &mut $crate::vcpu::frame::Frame,
            rsi: u64,
            rdx: u64,
        ) -> u32 {
            core::arch::naked_asm!(
                "push r8",
                "push r9",
                "push r10",
                "push r11",
                "push rdi",
                "call {handler}",
                "pop rdi",
                "pop r11",
                "pop r10",
                "pop r9",
                "pop r8",
                "ret",
                handler = sym $handler::<N>,
            )
        }

        $(#[$doc])*
        #[cfg(not(target_os = "none"))]
        extern "C" fn $name<N: $crate::vcpu::next::Next>(
            frame: &mut $crate::vcpu::frame::Frame,
            rsi: u64,
            rdx: u64,
        ) -> u32 {
            $handler::<N>(frame, rsi, rdx)
        }
    };
}

pub(super) use {keep, keep_rest};
