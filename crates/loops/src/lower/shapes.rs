//! Shapes and dense views, one copy of each: thousands of values have a few dozen shapes.

use crate::view::View;
use permalloy_ir::{Dim, MixHash};
use std::collections::HashMap;
use std::rc::Rc;

/// A shape shared by all values that have it.
pub(super) type Shape = Rc<[Dim]>;

#[derive(Default)]
pub(super) struct Shapes(HashMap<Shape, Rc<View>, MixHash>);

impl Shapes {
    /// The shared form of a shape, and its dense view.
    pub fn dense(&mut self, shape: &[Dim]) -> (Shape, Rc<View>) {
        if let Some((shape, view)) = self.0.get_key_value(shape) {
            return (shape.clone(), view.clone());
        }
        let (shape, view) = (Shape::from(shape), Rc::new(View::contiguous(shape)));
        self.0.insert(shape.clone(), view.clone());
        (shape, view)
    }
}
