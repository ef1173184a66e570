"""The paper's large experiments: data of millions of columns, components proven."""
