"""From a cost array to categories and a rule that dispatches any shape to one of them.

Processing order::

    objective   what to trade: mean and worst loss, kernels, bytes
    problem     the cost array, checked and normalised: ratios, utilities, Equation 1's terms
    covering    each instance votes for its k best; greedy coverings, and forward greedy paths
    exact       the covering of fewest bytes, by branch and bound
    trimming    fewer bytes: kernels dropped one after another, local search under bounds
    select      the curve of all candidates and the best point of it (Equation 2)
    smooth      longer runs of one category, within a tolerance
    orders      one order of additions for all categories, where the library is reproducible
    rule        a decision tree fitted to it, and what that gives up
    tree        the rule itself: total over all integers, read and written as JSON, what the library compiles
    table       the same assignment in readable form

Everything here sees arrays only; no cost model, no compiler. Only ``rule.fit_rule`` needs scikit-learn.
"""
