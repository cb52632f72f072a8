# scores the model
print("eval")
