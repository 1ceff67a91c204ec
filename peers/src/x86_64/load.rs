// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Puts a guest into the memory, as `core/machine` plans it for Turnstile, too.

use std::fs;

use anyhow::{Context, Result};
use turnstile_machine::pc::boot::{self, Start};
use turnstile_machine::{Functions, Source};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use crate::options::Options;

/// Loads the guest and returns how its first vCPU begins.
///
/// # Errors
/// Says what is wrong with the image, or what does not fit.
pub fn load(memory: &GuestMemoryMmap, options: &Options, guest: &[u8]) -> Result<Start> {
    let read = |path| fs::read(path).with_context(|| format!("cannot read {path:?}"));
    let initrd = options.pc.initrd.as_ref().map(read).transpose()?;
    let source = Source {
        kernel: guest,
        initrd: initrd.as_deref(),
        cmdline: &options.cmdline,
        memory: options.pc.memory << 20,
        vcpus: options.vcpus,
        functions: Functions::default(),
    };
    let plan = boot::plan(&source).map_err(|error| anyhow::anyhow!("the guest: {error}"))?;
    for load in plan.loads {
        memory.write_slice(&load.bytes, GuestAddress(load.address)).context("cannot load the guest")?;
    }
    Ok(plan.start)
}
