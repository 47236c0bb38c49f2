"""Can a module bring context? Small synthetic tasks on handwritten digits, and the training that answers.

The idea is that of associative recall in language modelling (Arora et al., Zoology: Measuring and Improving Recall in
Efficient Language Models, ICLR 2024): a task of minutes that tells attention from its efficient rivals.
"""
