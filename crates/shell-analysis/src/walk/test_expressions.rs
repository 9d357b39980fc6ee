//! Expressions in `[[ … ]]`: the parts that are computed, and the commands that their words run.

use brush_parser::ast::{BinaryPredicate, ExtendedTestExpr, UnaryPredicate, Word};

use super::LineWalk;

impl LineWalk<'_> {
    pub(super) fn walk_test(&mut self, expr: &ExtendedTestExpr) {
        match expr {
            ExtendedTestExpr::And(left, right) | ExtendedTestExpr::Or(left, right) => {
                self.walk_test(left);
                self.walk_test(right);
            }
            ExtendedTestExpr::Not(inner) | ExtendedTestExpr::Parenthesized(inner) => self.walk_test(inner),
            ExtendedTestExpr::UnaryTest(predicate, word) => {
                self.walk_test_word(word, !names_variable(predicate));
            }
            ExtendedTestExpr::BinaryTest(predicate, left, right) => {
                let only_compares = match predicate {
                    // Operands that are compared as numbers are computed, and computing runs commands.
                    BinaryPredicate::ArithmeticEqualTo
                    | BinaryPredicate::ArithmeticNotEqualTo
                    | BinaryPredicate::ArithmeticLessThan
                    | BinaryPredicate::ArithmeticLessThanOrEqualTo
                    | BinaryPredicate::ArithmeticGreaterThan
                    | BinaryPredicate::ArithmeticGreaterThanOrEqualTo => is_number(left) && is_number(right),
                    // Shells do not agree on the end of such a pattern.
                    BinaryPredicate::StringMatchesRegex | BinaryPredicate::StringContainsSubstring => {
                        !right.value.contains(['(', ')', '|', ';', '&', '<', '>', '\n'])
                    }
                    BinaryPredicate::FilesReferToSameDeviceAndInodeNumbers
                    | BinaryPredicate::LeftFileIsNewerOrExistsWhenRightDoesNot
                    | BinaryPredicate::LeftFileIsOlderOrDoesNotExistWhenRightDoes
                    | BinaryPredicate::StringExactlyMatchesPattern
                    | BinaryPredicate::StringDoesNotExactlyMatchPattern
                    | BinaryPredicate::StringExactlyMatchesString
                    | BinaryPredicate::StringDoesNotExactlyMatchString
                    | BinaryPredicate::LeftSortsBeforeRight
                    | BinaryPredicate::LeftSortsAfterRight => true,
                };
                self.walk_test_word(left, only_compares);
                self.walk_test_word(right, only_compares);
            }
        }
    }

    fn walk_test_word(&mut self, word: &Word, only_compares: bool) {
        if !only_compares {
            self.computes = true;
            self.line.note_opaque("a test that may compute");
            // An index in it is expanded once more, whatever its quotes.
            for word in self.scan_words(&word.value) {
                self.run_live(&word.value);
            }
        }
        self.run_expansions(word);
    }
}

/// Reports whether a test looks at a variable by its name, whose index it computes.
const fn names_variable(predicate: &UnaryPredicate) -> bool {
    matches!(predicate, UnaryPredicate::ShellVariableIsSetAndAssigned | UnaryPredicate::ShellVariableIsSetAndNameRef)
}

/// Reports whether a word is a number and cannot be anything else.
fn is_number(word: &Word) -> bool {
    let text = word.value.trim_matches('"');
    matches!(text, "$?" | "$#") || !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}
