"""The infrastructure side: one file per ComponentResource, and the stack's config model beside them."""
