// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The description of a service in a bundle.

use dtoolkit::fdt::FdtNode;

use crate::error::BundleError;
use crate::fields::{double_word, fields, flag, no_children, text, word};
use crate::service::{ServiceSpec, Uplink};

/// Reads the description of a service.
pub fn read_service<'a>(node: &FdtNode<'a>, images: &[&'a [u8]]) -> Result<ServiceSpec<'a>, BundleError> {
    const MALFORMED: BundleError = BundleError::Malformed("a service's description");
    no_children(node)?;
    let [name, program, vm, device, limit, memory, disk, joins, cpu, uplink, trusted, ports] = fields(
        node,
        [
            "name",
            "program",
            "vm",
            "device",
            "time-limit",
            "memory",
            "disk",
            "joins",
            "cpu",
            "uplink",
            "trusted",
            "ports",
        ],
    )?;
    let number = |value: Option<&[u8]>| value.and_then(word).map(|value| value as usize).ok_or(MALFORMED);
    Ok(ServiceSpec {
        name: name.and_then(text).ok_or(MALFORMED)?,
        program: images.get(number(program)?).copied().ok_or(BundleError::Malformed("an image's index"))?,
        vm: vm.map(|vm| number(Some(vm))).transpose()?,
        device: device
            .and_then(text)
            .and_then(|device| device.parse().ok())
            .ok_or(BundleError::Malformed("a service's device"))?,
        limit: double_word(limit.ok_or(MALFORMED)?)?,
        memory: flag(memory)?,
        disk: disk.map(|disk| number(Some(disk))).transpose()?,
        joins: joins.map(|joins| number(Some(joins))).transpose()?,
        // One that is too large for any machine stays so.
        cpu: cpu.map(|cpu| number(Some(cpu))).transpose()?.map(|cpu| u16::try_from(cpu).unwrap_or(u16::MAX)),
        uplink: match (uplink, flag(trusted)?) {
            (None, true) => return Err(MALFORMED),
            (None, false) => None,
            (card, trusted) => Some(Uplink { card: number(card)?, trusted }),
        },
        ports: ports
            .map_or(Ok(""), |ports| text(ports).filter(|ports| !ports.is_empty()).ok_or(MALFORMED))?,
    })
}
