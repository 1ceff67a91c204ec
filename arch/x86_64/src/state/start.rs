// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the first vCPU of a VM begins with.

/// In which mode the first vCPU begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Protected mode without paging, flat segments of 32 bits: PVH, multiboot.
    #[default]
    Protected,
    /// 64-bit mode with these page tables: Linux's 64-bit boot protocol.
    Long {
        /// CR3.
        root: u64,
    },
}

/// What the first vCPU begins with; all other registers are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BootState {
    /// Its mode.
    pub mode: Mode,
    /// RIP.
    pub rip: u64,
    /// RSP.
    pub rsp: u64,
    /// RAX.
    pub rax: u64,
    /// RBX.
    pub rbx: u64,
    /// RSI.
    pub rsi: u64,
    /// Selectors of CS, and of DS, ES and SS: those of the protocol's GDT, if it has one.
    pub selectors: [u16; 2],
}
