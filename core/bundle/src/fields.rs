// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The properties of a node, and what their values can be.

use core::ffi::CStr;

use dtoolkit::fdt::FdtNode;
use dtoolkit::{Node, Property};

use crate::error::BundleError;

/// Returns the values of a node's properties of these names, each at most once and no others.
pub fn fields<'a, const N: usize>(
    node: &FdtNode<'a>,
    names: [&str; N],
) -> Result<[Option<&'a [u8]>; N], BundleError> {
    let mut values = [None; N];
    for property in node.properties() {
        let position = names.iter().position(|name| *name == property.name());
        let slot = position.and_then(|position| values.get_mut(position));
        match slot {
            Some(slot @ None) => *slot = property.value_as().ok(),
            Some(Some(_)) => return Err(BundleError::Malformed("a property twice")),
            None => return Err(BundleError::Malformed("an unknown property")),
        }
    }
    Ok(values)
}

pub fn no_children(node: &FdtNode<'_>) -> Result<(), BundleError> {
    match node.children().next() {
        None => Ok(()),
        Some(_) => Err(BundleError::Malformed("an unknown node")),
    }
}

/// Reads a property whose presence is its value.
pub fn flag(value: Option<&[u8]>) -> Result<bool, BundleError> {
    match value {
        None => Ok(false),
        Some([]) => Ok(true),
        Some(_) => Err(BundleError::Malformed("a flag with a value")),
    }
}

/// Reads a property of two cells.
pub fn double_word(value: &[u8]) -> Result<u64, BundleError> {
    value.try_into().map(u64::from_be_bytes).map_err(|_| BundleError::Malformed("a number of 64 bits"))
}

pub fn word(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_be_bytes)
}

/// Returns the text of a property: UTF-8 with exactly one NUL, at its end.
pub fn text(value: &[u8]) -> Option<&str> {
    CStr::from_bytes_with_nul(value).ok()?.to_str().ok()
}
