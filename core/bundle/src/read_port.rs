// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The description of a port of a network in a bundle.

use dtoolkit::fdt::FdtNode;

use crate::error::BundleError;
use crate::fields::{double_word, fields, flag, no_children, word};
use crate::port::PortSpec;

/// Reads the description of a port.
pub fn read_port(node: &FdtNode<'_>) -> Result<PortSpec, BundleError> {
    const MALFORMED: BundleError = BundleError::Malformed("a port's description");
    no_children(node)?;
    let [service, vm, mac, guard, isolated, rate, queues] =
        fields(node, ["service", "vm", "mac", "guard", "isolated", "rate", "queues"])?;
    let number = |value: Option<&[u8]>| value.and_then(word).map(|value| value as usize).ok_or(MALFORMED);
    Ok(PortSpec {
        service: number(service)?,
        vm: number(vm)?,
        mac: mac.and_then(|mac| mac.try_into().ok()).ok_or(MALFORMED)?,
        guard: flag(guard)?,
        isolated: flag(isolated)?,
        rate: rate.map(double_word).transpose()?,
        queues: queues.and_then(word).and_then(|queues| queues.try_into().ok()).ok_or(MALFORMED)?,
    })
}
